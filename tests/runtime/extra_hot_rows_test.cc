// Extra hot rows (placement.hot_rows = auto, beyond two sets): they use free device memory, and
// give it back to any other allocation at any time. Bits do not depend on them.
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "scheduler/plan/head_groups.h"
#include "tests/support/queued_steps.h"
#include "tests/support/runs.h"
#include "tests/support/stepped_device.h"

namespace fasa::testing {
namespace {

using Outputs = std::vector<std::vector<float>>;

constexpr int kPrompt = 900;
constexpr uint64_t kMemory = uint64_t{2} << 20;
constexpr double kSlowLink = 1e7;  // 16 sets are worth it

RunSetup setup_with(std::optional<int> hot_rows) {
  return {.device = "emulated",
          .hot_rows = hot_rows,
          .link_bandwidth = kSlowLink,
          .device_memory = kMemory};
}

void expect_same(const Outputs& a, const Outputs& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(same_bits(a[i], b[i])) << what << ' ' << i;
}

uint64_t hot_bytes(RuntimeRun& run) {
  const KvMemory memory = run.runtime().memory();
  return memory.device_hot_rows + memory.device_extra;
}
uint64_t free_bytes(RuntimeRun& run) {
  const MemoryUse use = run.device().memory(MemorySpace::kDevice);
  return use.limit_bytes - use.used_bytes;
}

// A fetch looks at each slot and moves what the slots lack: 8 heads' rows of 512 bytes.
TEST(ExtraHotRows, AreAsManyAsALinkIsWorth) {
  StepSettings settings;
  settings.layout.kv_heads = 8;
  settings.layout.row = {DType::kBF16, 128, 128};
  const auto sets = [&](double link_bandwidth) {
    settings.rates.link_bandwidth = link_bandwidth;
    return worthwhile_sets(settings);
  };
  EXPECT_EQ(sets(1e9), 16);
  EXPECT_EQ(sets(12.6e9), 14);
  EXPECT_EQ(sets(25e9), 10);
  EXPECT_EQ(sets(50e9), 7);
  EXPECT_EQ(sets(400e9), 2);
  EXPECT_EQ(sets(2000e9), 2);
  settings.rates.kernels = KernelCosts::with_launch(0);
  EXPECT_EQ(sets(400e9), 16);
}

TEST(ExtraHotRows, AreWhatIsLeftAndHitMore) {
  const auto decode = [](std::optional<int> hot_rows, uint64_t* bytes, uint64_t* misses) {
    RuntimeRun run(setup_with(hot_rows));
    const SequenceId id = run.runtime().create();
    run.runtime().reserve(id, kPrompt + 40, 100);
    run.prefill(id, 1, kPrompt, 100);
    Outputs outputs = run.decode(id, 1, 40);
    *bytes = hot_bytes(run);
    *misses = run.runtime().metrics().rows.misses;
    return outputs;
  };
  uint64_t of_two = 0, of_extra = 0, misses_two = 0, misses_extra = 0;
  const Outputs two = decode(96, &of_two, &misses_two);
  const Outputs extra = decode(std::nullopt, &of_extra, &misses_extra);
  expect_same(two, extra, "extra hot rows");
  EXPECT_GT(of_extra, 5 * of_two);
  EXPECT_LT(misses_extra, misses_two * 3 / 4);
}

// An allocation inside a step too: its layers continue with fewer hot rows.
TEST(ExtraHotRows, AnybodysAllocationComesFirst) {
  const auto run_one = [](bool disturbed) {
    RuntimeRun run(setup_with(std::nullopt));
    const SequenceId id = run.runtime().create();
    run.prefill(id, 1, kPrompt, 100);
    const uint64_t least = hot_bytes(run);
    Outputs all = run.decode(id, 1, 3);
    const uint64_t before = hot_bytes(run);
    EXPECT_GT(before, 2 * least);
    const Part part{id, 1, kPrompt + 3, 1, StepMode::kDecode};
    run.tape().begin({&part, 1});
    Buffer other;
    if (disturbed) {
      EXPECT_THROW(run.device().allocate(MemorySpace::kDevice, free_bytes(run) + before, "all"),
                   BudgetError);
      EXPECT_EQ(hot_bytes(run), before);  // hot rows shrink only if that helps
      other = run.device().allocate(MemorySpace::kDevice, free_bytes(run) + 1, "somebody else");
      EXPECT_EQ(hot_bytes(run), least);
    }
    all.push_back(run.tape().layers({&part, 1}));
    run.runtime().end_step();
    for (auto& step : run.decode(id, 1, 5)) all.push_back(std::move(step));
    EXPECT_EQ(hot_bytes(run), disturbed ? least : before);  // they do not alternate
    return all;
  };
  expect_same(run_one(false), run_one(true), "disturbed");
}

TEST(ExtraHotRows, GiveWayToAnotherSequence) {
  RuntimeRun run(setup_with(std::nullopt));
  const SequenceId first = run.runtime().create();
  run.prefill(first, 1, kPrompt, 100);
  run.decode(first, 1, 3);
  const uint64_t before = hot_bytes(run);
  Buffer rest = run.device().allocate(MemorySpace::kDevice, free_bytes(run), "the rest");
  const SequenceId second = run.runtime().create();
  run.runtime().reserve(second, 400, 50);
  EXPECT_LT(hot_bytes(run), before);
  run.prefill(second, 2, 300, 50);
  const Outputs shared = run.decode(second, 2, 5);
  RuntimeRun alone(setup_with(64));
  const SequenceId same = alone.runtime().create();
  alone.prefill(same, 2, 300, 50);
  expect_same(alone.decode(same, 2, 5), shared, "second");
}

// All steps are enqueued before any of them runs, in any order: only later steps use a widened
// table.
TEST(ExtraHotRows, EveryOrderOfStreamsGivesTheSameBits) {
  const auto run_one = [](std::optional<int> hot_rows, const StepPolicy& policy) {
    DeviceOptions options;
    options.link_bandwidth = kSlowLink;
    auto owned = std::make_unique<SteppedDevice>(fifo(), options);
    SteppedDevice& device = *owned;
    RuntimeRun run(std::move(owned), {.hot_rows = hot_rows, .head_groups = 2});
    const SequenceId id = run.runtime().create();
    run.runtime().reserve(id, 400, 100);
    run.prefill(id, 1, 300, 100);
    QueuedSteps queued(run.device(), run.runtime(), run.tape());
    for (int i = 0; i < 12; ++i) {
      const Part part{id, 1, 300 + i, 1, StepMode::kDecode};
      queued.prepare({&part, 1});
    }
    device.set_policy(policy);
    queued.enqueue();
    return queued.finish();
  };
  const Outputs expected = run_one(96, fifo());
  for (const StepPolicy& policy :
       {fifo(), lifo(), youngest_stream_first(), starve("write-back"), starve("copy"),
        starve("test compute"), starve("control"), random_order(1), random_order(2)}) {
    expect_same(expected, run_one(std::nullopt, policy), "queued");
  }
}

}  // namespace
}  // namespace fasa::testing
