// The predictor runners-up: lists that selects write are fetched for the next step, and change
// nothing but when rows come.
#include <gtest/gtest.h>

#include <climits>
#include <random>

#include "offload/open_device.h"
#include "offload/wrapped_device.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

constexpr int kSet = 28;  // 8 tokens compete
constexpr int64_t kPrompt = 900;

RunSetup setup_of(int hot_sets, std::optional<int> depth = 1) {
  return {.device = "emulated",
          .hot_rows = hot_sets * kSet,
          .fac_tokens = kSet,
          .depth = depth,
          .predictor = PredictorKind::kRunnersUp};
}

struct Decoded {
  std::vector<std::vector<float>> outputs;
  StepCounters rows;
};

Decoded decode(RuntimeRun& run, int steps) {
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, kPrompt, 300);
  Decoded decoded{run.decode(id, 1, steps), {}};
  decoded.rows = run.runtime().metrics().rows;
  return decoded;
}
Decoded decode(const RunSetup& setup, int steps) {
  RuntimeRun run(setup);
  return decode(run, steps);
}

TEST(RunnersUp, AreFetchedForTheNextStep) {
  const Decoded without = decode(setup_of(8, 0), 30);
  for (const int depth : {1, 2}) {
    const Decoded with = decode(setup_of(8, depth), 30);
    EXPECT_EQ(with.outputs, without.outputs);
    EXPECT_GT(with.rows.prefetched_used, 0u);
    EXPECT_LT(with.rows.misses, without.rows.misses);
  }
  EXPECT_EQ(decode(setup_of(8), 1).rows.prefetched, 0u) << "the first step has no list";
}

// As many as the hot rows are worth: none below eight sets, a set from there on.
TEST(RunnersUp, AreNoMoreThanHotRowsAreWorth) {
  EXPECT_EQ(decode(setup_of(7), 10).rows.prefetched, 0u);
  const auto fetched = [](int sets) { return decode(setup_of(sets), 2).rows.prefetched; };
  const uint64_t heads = 2 * 2;  // layers after the first, KV heads
  EXPECT_LE(fetched(8), heads * kSet);
  EXPECT_GT(fetched(8), heads * kSet / 2);
}

// Two sequences that take turns: no step follows a step of the same sequences.
TEST(RunnersUp, ListsOfOtherSequencesAreNotUsed) {
  RuntimeRun run(setup_of(8));
  const SequenceId ids[] = {run.runtime().create(), run.runtime().create()};
  for (const SequenceId id : ids) run.prefill(id, 1, kPrompt, 300);
  for (int step = 0; step < 8; ++step) run.decode(ids[step % 2], 1, 1);
  EXPECT_EQ(run.runtime().metrics().rows.prefetched, 0u);
  run.decode(ids[1], 1, 2);
  EXPECT_GT(run.runtime().metrics().rows.prefetched, 0u);
}

TEST(RunnersUp, ListsOfAnAbortedOrTruncatedStepAreNotUsed) {
  RuntimeRun run(setup_of(8));
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, kPrompt, 300);
  run.decode(id, 1, 1);
  const Part part{id, 1, run.runtime().length(id), 1, StepMode::kDecode};
  run.tape().begin({&part, 1});
  run.runtime().abort_step();
  run.decode(id, 1, 1);
  EXPECT_EQ(run.runtime().metrics().rows.prefetched, 0u);
  run.runtime().truncate(id, kPrompt - 100);
  run.decode(id, 2, 1);
  EXPECT_EQ(run.runtime().metrics().rows.prefetched, 0u);
}

// Replaces every list: none, sizes out of range, or any positions in any order.
class WrongLists final : public WrappedDevice {
 public:
  enum class Kind : uint8_t { kEmpty, kFull, kAnything };
  WrongLists(std::unique_ptr<Device> inner, Kind kind)
      : WrappedDevice(*inner), owned_(std::move(inner)), kind_(kind) {}

  int changed() const { return changed_; }

 protected:
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override {
    WrappedDevice::do_enqueue(call, stream, tag);
    const auto* select = std::get_if<SelectParams>(&call);
    if (select == nullptr || select->runners_up.capacity == 0) return;
    ++changed_;
    launch(
        stream, "wrong lists", [this, params = *select] { return change(params); }, tag);
  }

 private:
  KernelWork change(const SelectParams& params) {
    const RunnersUp& lists = params.runners_up;
    const int heads = params.step.count * params.step.layout.kv_heads;
    for (int head = 0; head < heads; ++head) {
      const bool sized = random_() % 4 != 0;
      lists.sizes[head] = kind_ == Kind::kEmpty ? (sized ? 0 : -3)
                          : sized               ? lists.capacity
                                                : INT32_MAX;
      if (kind_ == Kind::kEmpty) continue;
      for (int i = 0; i < lists.capacity; ++i) {
        const auto any = static_cast<int32_t>(random_() % (kPrompt + 60)) - 10;
        const bool extreme = kind_ == Kind::kAnything && random_() % 8 == 0;
        lists.positions[int64_t{head} * lists.capacity + i] =
            extreme ? (random_() % 2 == 0 ? INT32_MIN : INT32_MAX) : any;
      }
    }
    return {};
  }

  std::unique_ptr<Device> owned_;
  Kind kind_;
  std::mt19937 random_{7};
  int changed_ = 0;
};

TEST(RunnersUp, WrongEmptyAndFullListsChangeNoBits) {
  const Decoded right = decode(setup_of(8, 0), 24);
  for (const auto kind :
       {WrongLists::Kind::kEmpty, WrongLists::Kind::kFull, WrongLists::Kind::kAnything}) {
    for (const int depth : {1, 2}) {
      DeviceOptions options;
      options.name = "emulated";
      auto device = std::make_unique<WrongLists>(open_device(options), kind);
      const WrongLists& lists = *device;
      RuntimeRun run(std::move(device), setup_of(8, depth));
      const Decoded wrong = decode(run, 24);
      EXPECT_EQ(wrong.outputs, right.outputs) << static_cast<int>(kind) << " depth " << depth;
      EXPECT_GT(lists.changed(), 24);
      EXPECT_EQ(wrong.rows.prefetched > 0, kind != WrongLists::Kind::kEmpty);
    }
  }
}

// Rows that arrive long after they are asked for.
TEST(RunnersUp, LateRowsChangeNoBits) {
  const Decoded right = decode(setup_of(8, 0), 24);
  for (const double bandwidth : {1e5, 1e7, 25e9}) {
    RunSetup slow = setup_of(8);
    slow.link_bandwidth = bandwidth;
    EXPECT_EQ(decode(slow, 24).outputs, right.outputs) << bandwidth;
  }
}

// With every other token attended to by codes, and with a low-bit set shorter than the list.
TEST(RunnersUp, GoOnBehindAnyLowBitSet) {
  for (const int64_t low_bit : {int64_t{5}, int64_t{200}, kAllOthers}) {
    RunSetup with = setup_of(8);
    with.low_bit_tokens = low_bit;
    RunSetup without = setup_of(8, 0);
    without.low_bit_tokens = low_bit;
    const Decoded decoded = decode(with, 20);
    EXPECT_EQ(decoded.outputs, decode(without, 20).outputs) << low_bit;
    EXPECT_GT(decoded.rows.prefetched_used, 0u) << low_bit;
  }
}

}  // namespace
}  // namespace fasa::testing
