// Resolve, gather and claim_slots of the CUDA device under the interpreter, against the reference.
#include <gtest/gtest.h>

#include <random>

#include "kernels/cuda/claim_slots_inl.h"
#include "kernels/cuda/gather_inl.h"
#include "kernels/cuda/resolve_inl.h"
#include "kernels/replacement.h"
#include "tests/kernels/claim_slots_case.h"
#include "tests/kernels/resolve_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

RowKernels simt_row_kernels(SimtInterpreter& interpreter) {
  const SimtLauncher launch(interpreter);
  return {[launch](const ResolveParams& params) { cuda::start(params, launch); },
          [launch](const ClaimSlotsParams& params) { cuda::start(params, launch); },
          [launch](const GatherParams& params) { cuda::start(params, launch); },
          [launch](const FetchParams& params) { cuda::start(params, launch); }};
}

class SimtResolve : public ::testing::TestWithParam<ResolveSetting> {};

TEST_P(SimtResolve, SameAsReferenceAndRowsArrive) {
  SimtInterpreter interpreter(SimtInterpreter::Order::kRandom, 5);
  expect_resolves_as_reference(GetParam(), simt_row_kernels(interpreter));
}

INSTANTIATE_TEST_SUITE_P(Settings, SimtResolve, ::testing::ValuesIn(resolve_settings()),
                         [](const auto& test) { return name_of(test.param); });

class SimtClaimSlots : public ::testing::TestWithParam<ClaimSlotsSetting> {};

TEST_P(SimtClaimSlots, SameAsReference) {
  SimtInterpreter interpreter(SimtInterpreter::Order::kRandom, 6);
  expect_claims_slots_as_reference(GetParam(), simt_row_kernels(interpreter));
}

INSTANTIATE_TEST_SUITE_P(Settings, SimtClaimSlots, ::testing::ValuesIn(claim_slots_settings()),
                         [](const auto& test) { return name_of(test.param); });

// The slots to replace, also more than a block sorts in shared memory, against the host's choice.
struct ChooseKernel {
  static constexpr const char* kName = "choose";
  static constexpr int kThreads = cuda::kHotThreads;
  StepParams step;
  const SequenceDesc* sequence;
  Replacement policy;
  int32_t step_number;
  int wanted;
  FetchItem* overflow;
  int32_t* chosen;
  int* count;

  void operator()() const {
    const cuda::HotHead head(step, *sequence, sequence->hot_table, 0);
    const cuda::Victims victims = head.choose(
        policy, step_number, [](int slot) { return slot % 5 == 1; }, wanted, overflow);
    for (int i = simt::thread_index(); i < victims.count; i += kThreads) {
      chosen[i] = victims.slot(i);
    }
    if (simt::thread_index() == 0) *count = victims.count;
  }
};

TEST(SimtReplacement, ChoosesWhatTheHostChooses) {
  std::mt19937 random(12);
  for (const int slots : {1, 33, 1000, 4 * cuda::HotShared::kSorted + 700}) {
    for (const Replacement policy : {Replacement::kLru, Replacement::kClock, Replacement::kScore}) {
      for (const int wanted : {0, 1, slots / 3, slots}) {
        CacheLayout layout;
        layout.layers = layout.kv_heads = 1;
        constexpr int32_t kStep = 100;
        std::vector<int32_t> table(static_cast<size_t>(layout.hot_table_bytes(slots) / 4));
        for (int slot = 0; slot < slots; ++slot) {
          const auto at = static_cast<size_t>(slot);
          table[at] = random() % 6 == 0 ? -1 : slot;
          const auto step = static_cast<int32_t>(kStep - random() % 20);
          table[at + static_cast<size_t>(slots)] =
              random() % 5 == 0 ? predicted_use(step)
                                : slot_use(step, static_cast<int32_t>(random() % 8));
        }
        table.back() = static_cast<int32_t>(random() % static_cast<unsigned>(slots + 3)) - 1;
        std::vector<int32_t> expected_table = table;
        std::vector<uint8_t> keep(static_cast<size_t>(slots));
        for (size_t slot = 0; slot < keep.size(); ++slot) keep[slot] = slot % 5 == 1 ? 1 : 0;
        std::vector<int32_t> expected(static_cast<size_t>(slots));
        expected.resize(static_cast<size_t>(
            choose_victims(policy, HotSlots::of(layout, expected_table.data(), 0, 0, slots), kStep,
                           keep.data(), wanted, expected.data())));

        SequenceDesc sequence;
        sequence.hot_table = table.data();
        sequence.hot_rows = slots;
        std::vector<FetchItem> overflow(static_cast<size_t>(wanted));
        std::vector<int32_t> chosen(static_cast<size_t>(slots));
        int count = -1;
        SimtInterpreter interpreter(SimtInterpreter::Order::kRandom, 3);
        SimtLauncher launch(interpreter);
        launch(
            ChooseKernel{
                {layout}, &sequence, policy, kStep, wanted, overflow.data(), chosen.data(), &count},
            {.shared_bytes = sizeof(cuda::HotShared)});
        ASSERT_EQ(count, static_cast<int>(expected.size()));
        chosen.resize(expected.size());
        EXPECT_EQ(chosen, expected) << slots << " slots, " << wanted << " wanted";
        EXPECT_EQ(table, expected_table) << slots << " slots, " << wanted << " wanted";
      }
    }
  }
}

}  // namespace
}  // namespace fasa
