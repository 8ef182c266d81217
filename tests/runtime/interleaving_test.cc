// Every order of the streams that events allow gives the same bits, and every event is necessary:
// without it some order gives other bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "tests/support/queued_steps.h"
#include "tests/support/runs.h"
#include "tests/support/wait_dropper.h"

namespace fasa::testing {
namespace {

using Outputs = std::vector<std::vector<float>>;

struct NamedPolicy {
  std::string name;
  StepPolicy policy;
};

std::vector<NamedPolicy> forced_orders() {
  return {{"as enqueued", fifo()},
          {"last enqueued first", lifo()},
          {"youngest stream first", youngest_stream_first()},
          {"oldest stream first", oldest_stream_first()},
          {"copies starved", starve("copy")},
          {"copies starved, the others last enqueued first", starve("copy", lifo())},
          {"lane 0 starved", starve("copy 0")},
          {"lane 1 starved", starve("copy 1")},
          {"write-back starved", starve("write-back")},
          {"write-back starved, lanes in reverse", starve("write-back", youngest_stream_first())},
          {"compute starved", starve("test compute")},
          {"control starved", starve("control")}};
}

std::vector<NamedPolicy> random_orders(int count) {
  std::vector<NamedPolicy> orders;
  for (int seed = 0; seed < count; ++seed) {
    orders.push_back({"random " + std::to_string(seed), random_order(static_cast<uint64_t>(seed))});
  }
  return orders;
}

// Two sequences: decode steps, a step that decodes one and prefills the other, decode steps.
struct Sequences {
  SequenceId a, b;
};
constexpr int kLengthA = 150;
constexpr int kLengthB = 70;
constexpr int kFilled = 30;  // tokens of b in the mixed step
// Steps before the run, so that both slots hold descriptors of both sequences: work that runs too
// early for lack of a wait then reads old descriptors, never uninitialised ones.
constexpr int kWarm = 2;

Sequences fill(RuntimeRun& run) {
  const Sequences ids{run.runtime().create(), run.runtime().create()};
  run.prefill(ids.a, 1, kLengthA, 67);
  run.prefill(ids.b, 2, kLengthB, 64);
  for (int i = 0; i < kWarm; ++i) {
    const std::vector<Part> both = {{ids.a, 1, kLengthA + i, 1, StepMode::kDecode},
                                    {ids.b, 2, kLengthB + i, 1, StepMode::kDecode}};
    run.tape().step(both);
  }
  return ids;
}

std::vector<std::vector<Part>> schedule(const Sequences& ids, int before, int after) {
  std::vector<std::vector<Part>> steps;
  int64_t a = kLengthA + kWarm, b = kLengthB + kWarm;
  const auto decode_both = [&](int count) {
    for (int i = 0; i < count; ++i) {
      steps.push_back(
          {{ids.a, 1, a++, 1, StepMode::kDecode}, {ids.b, 2, b++, 1, StepMode::kDecode}});
    }
  };
  decode_both(before);
  if (after > 0) {
    steps.push_back(
        {{ids.a, 1, a++, 1, StepMode::kDecode}, {ids.b, 2, b, kFilled, StepMode::kPrefill}});
    b += kFilled;
  }
  decode_both(after);
  return steps;
}

Outputs run_synchronized(const RunSetup& setup, int before, int after) {
  RuntimeRun run(setup);
  Outputs outputs;
  for (const auto& parts : schedule(fill(run), before, after)) {
    outputs.push_back(run.tape().step(parts));
  }
  return outputs;
}

// Prefills with `as enqueued`, then enqueues all steps before any of them runs.
Outputs run_queued(RuntimeRun& run, const std::vector<std::vector<Part>>& steps) {
  QueuedSteps queued(run.device(), run.runtime(), run.tape());
  for (const auto& parts : steps) queued.prepare(parts);
  queued.enqueue();
  return queued.finish();
}

Outputs run_stepped(const RunSetup& setup, const StepPolicy& policy, int before, int after) {
  RuntimeRun run(std::make_unique<SteppedDevice>(policy), setup);
  return run_queued(run, schedule(fill(run), before, after));
}

bool same(const Outputs& a, const Outputs& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bits);
}

TEST(Interleaving, EveryOrderGivesTheSameBits) {
  for (const RunSetup& setup :
       {RunSetup{.hot_rows = 64}, RunSetup{.hot_rows = 64, .head_groups = 2},
        RunSetup{.hot_rows = 64, .streams = 1, .head_groups = 2, .dense_layers = {2}},
        RunSetup{.hot_rows = 20, .dense_layers = {1}},
        RunSetup{.hot_rows = 20, .low_bit_tokens = 40},
        RunSetup{.hot_rows = 20, .low_bit_tokens = kAllOthers},
        RunSetup{.hot_rows = 40, .row_dtype = RowDType::kInt8, .dense_layers = {2}},
        RunSetup{.hot_rows = 64, .head_groups = 2, .shared_layers = 1},
        RunSetup{.hot_rows = 20, .shared_layers = 2},
        RunSetup{.hot_rows = 20, .dense_layers = {2}, .shared_layers = 1}}) {
    const Outputs expected = run_synchronized(setup, 4, 3);
    auto orders = forced_orders();
    for (auto& order : random_orders(50)) orders.push_back(std::move(order));
    for (const auto& [name, policy] : orders) {
      EXPECT_TRUE(same(expected, run_stepped(setup, policy, 4, 3)))
          << name << ", hot rows " << setup.hot_rows.value_or(-1) << ", groups of heads "
          << setup.head_groups.value_or(-1);
    }
  }
}

// Overlaps of the pipeline, each forced in turn. First: a set that is attended to in waves.
TEST(Interleaving, TheLowBitSetIsAttendedToBeforeTheMissesArrive) {
  auto owned = std::make_unique<SteppedDevice>();
  SteppedDevice& device = *owned;
  const RunSetup setup{.hot_rows = 20, .low_bit_tokens = 40};
  RuntimeRun run(std::move(owned), setup);
  const auto steps = schedule(fill(run), 1, 0);
  QueuedSteps queued(run.device(), run.runtime(), run.tape());
  queued.prepare(steps[0]);
  queued.enqueue();

  device.set_policy(starve("copy", starve("write-back")));
  const StreamView compute = device.find_stream("test compute");
  ASSERT_TRUE(device.run_until("test compute", "attend", 1));
  ASSERT_TRUE(device.step(compute));               // and the tiles that are ready
  for (const char* lane : {"copy 1", "copy 0"}) {  // layer 1 begins with lane 1
    EXPECT_EQ(device.next_operation("test compute"), "wait");
    EXPECT_FALSE(device.step(compute)) << "the other tiles need " << lane;
    const StreamView copy = device.find_stream(lane);
    while (device.next_operation(lane) != "gather") ASSERT_TRUE(device.step(copy));
    EXPECT_FALSE(device.step(compute)) << lane;
    ASSERT_TRUE(device.step(copy));
    EXPECT_EQ(device.next_operation(lane), "record");
    EXPECT_FALSE(device.step(compute)) << lane;
    ASSERT_TRUE(device.step(copy));
    EXPECT_TRUE(device.step(compute)) << lane;
  }
  EXPECT_EQ(device.next_operation("test compute"), "attend");
  EXPECT_TRUE(same(run_synchronized(setup, 1, 0), queued.finish()));
}

// Second: heads that are scored in groups.
TEST(Interleaving, RowsOfTheFirstHeadsArriveWhileOthersAreScored) {
  auto owned = std::make_unique<SteppedDevice>();
  SteppedDevice& device = *owned;
  const RunSetup setup{.hot_rows = 64, .head_groups = 2, .depth = 0};
  RuntimeRun run(std::move(owned), setup);
  const auto steps = schedule(fill(run), 1, 0);
  QueuedSteps queued(run.device(), run.runtime(), run.tape());
  queued.prepare(steps[0]);
  queued.enqueue();

  device.set_policy(starve("copy", starve("write-back")));
  const StreamView compute = device.find_stream("test compute");
  const auto fetch = [&](const char* lane) {
    const StreamView copy = device.find_stream(lane);
    while (device.next_operation(lane) != "fetch") ASSERT_TRUE(device.step(copy)) << lane;
    ASSERT_TRUE(device.step(copy));
    EXPECT_EQ(device.next_operation(lane), "record");
    ASSERT_TRUE(device.step(copy));
  };
  ASSERT_TRUE(device.run_until("test compute", "select", 1));
  ASSERT_TRUE(device.step(compute));
  EXPECT_EQ(device.next_operation("test compute"), "record");
  ASSERT_TRUE(device.step(compute));
  fetch("copy 1");  // layer 1 begins with lane 1
  EXPECT_EQ(device.next_operation("test compute"), "select");
  ASSERT_TRUE(device.run_until("test compute", "attend", 1));
  // the first group, before the second group's rows have arrived
  ASSERT_TRUE(device.step(compute));
  EXPECT_EQ(device.next_operation("test compute"), "wait");
  EXPECT_FALSE(device.step(compute)) << "the other heads' rows";
  fetch("copy 0");
  ASSERT_TRUE(device.step(compute));
  EXPECT_EQ(device.next_operation("test compute"), "attend");
  EXPECT_TRUE(same(run_synchronized(setup, 1, 0), queued.finish()));
}

// Drops waits one by one: a wait is necessary if some order gives wrong bits without it.
class DroppedWaits {
 public:
  struct Count {
    int with_teeth = 0;
    int all = 0;
  };

  explicit DroppedWaits(const RunSetup& setup)
      : setup_(setup), expected_(run_synchronized(setup, kBefore, kAfter)) {}

  std::map<std::string, Count> count() {
    for (const auto& [name, policy] : orders_) {
      EXPECT_TRUE(same(expected_, run(0, policy))) << "nothing dropped, " << name;
    }
    const std::vector<std::string> waits = waits_;
    std::map<std::string, Count> counts;
    for (size_t nth = 1; nth <= waits.size(); ++nth) {
      const bool noticed = std::any_of(orders_.begin(), orders_.end(), [&](const auto& order) {
        return !same(expected_, run(nth, order.policy));
      });
      Count& count = counts[waits[nth - 1]];
      ++count.all;
      count.with_teeth += noticed;
    }
    return counts;
  }

 private:
  static constexpr int kBefore = 3;  // no step crosses into a new page
  static constexpr int kAfter = 1;

  Outputs run(size_t nth, const StepPolicy& policy) {
    auto owned = std::make_unique<WaitDropper>(std::make_unique<SteppedDevice>());
    WaitDropper& device = *owned;
    RuntimeRun one(std::move(owned), setup_);
    const auto steps = schedule(fill(one), kBefore, kAfter);
    device.drop(nth);
    device.stepped().set_policy(policy);
    const Outputs outputs = run_queued(one, steps);
    waits_ = device.waits();
    return outputs;
  }

  const RunSetup setup_;
  const Outputs expected_;
  std::vector<NamedPolicy> orders_ = forced_orders();
  std::vector<std::string> waits_;
};

// Prints the waits whose loss no order detected: in runs this short, other waits cover them.
void expect_noticed(const RunSetup& setup, const std::vector<std::string>& needed) {
  const auto counts = DroppedWaits(setup).count();
  for (const std::string& name : needed) {
    ASSERT_TRUE(counts.contains(name)) << name;
    EXPECT_GT(counts.at(name).with_teeth, 0) << name;
  }
  for (const auto& [name, count] : counts) {
    std::cout << name << ": noticed " << count.with_teeth << " of " << count.all
              << (count.with_teeth == 0 ? " (redundant here)\n" : "\n");
  }
}

TEST(Interleaving, ADroppedWaitIsNoticed) {
  expect_noticed({.hot_rows = 64, .head_groups = 2, .depth = 0},
                 {"copy 0 for select of test compute", "copy 1 for select of test compute",
                  "test compute for fetch of copy 0", "test compute for fetch of copy 1",
                  "test compute for copy host to device of control",
                  "test compute for write_back of write-back",
                  "write-back for append of test compute", "control for write_back of write-back"});
}

TEST(Interleaving, ADroppedWaitIsNoticedBetweenWaves) {
  expect_noticed({.hot_rows = 20},
                 {"copy 0 for resolve of test compute", "copy 1 for resolve of test compute",
                  "test compute for gather of copy 0", "test compute for gather of copy 1"});
}

TEST(Interleaving, ADroppedWaitIsNoticedAroundDenseLayers) {
  expect_noticed(
      {.hot_rows = 20, .dense_layers = {1}},
      {"copy 1 for write_back of write-back", "test compute for copy host to device of copy 1"});
}

}  // namespace
}  // namespace fasa::testing
