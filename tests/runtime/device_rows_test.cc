// placement.rows = auto: rows on the host, with as many device copies as the budget allows.
// Results, and the contexts that fit, are those of rows on the host.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/queued_steps.h"
#include "tests/support/runs.h"
#include "tests/support/stepped_device.h"

namespace fasa::testing {
namespace {

using Outputs = std::vector<std::vector<float>>;

void add(Outputs& all, Outputs more) {
  for (auto& one : more) all.push_back(std::move(one));
}

void abort_a_step(RuntimeRun& run, SequenceId id) {
  const Part part{id, 99, run.runtime().length(id), 1, StepMode::kDecode};
  run.tape().begin({&part, 1});
  run.tape().layers({&part, 1}, true, 2);
  run.runtime().abort_step();
}

// One sequence: crosses page ends, is truncated inside and between pages, forked, and
// continued on both sides.
Outputs run_sequence(RuntimeRun& run, int chunk) {
  Runtime& runtime = run.runtime();
  const SequenceId a = runtime.create();
  Outputs all = run.prefill(a, 1, 300, chunk);
  add(all, run.decode(a, 1, 25));  // over position 320
  abort_a_step(run, a);
  add(all, run.decode(a, 1, 3));
  const SequenceId b = runtime.fork(a, 200);
  add(all, run.decode(b, 2, 60));  // over position 256
  runtime.truncate(a, 290);
  add(all, run.decode(a, 3, 35));
  runtime.truncate(a, 128);
  abort_a_step(run, a);
  add(all, run.prefill(a, 4, 100, chunk));
  for (int i = 0; i < 40; ++i) {
    const Part both[] = {{a, 4, runtime.length(a), 1, StepMode::kDecode},
                         {b, 2, runtime.length(b), 1, StepMode::kDecode}};
    all.push_back(run.tape().step(both));
  }
  runtime.free(b);
  add(all, run.decode(a, 4, 3));
  return all;
}

struct Lived {
  Outputs outputs;
  uint64_t peak_bytes = 0;
  StepCounters rows;
};

// Device memory beyond memory(): memory of others.
uint64_t of_others(RuntimeRun& run) {
  return run.device().memory(MemorySpace::kDevice).used_bytes -
         run.runtime().memory().device_total();
}

Lived live(RunSetup setup, RowPlacement rows, int chunk, std::optional<uint64_t> limit = {}) {
  setup.device = "emulated";
  setup.rows = rows;
  setup.device_memory = limit;
  RuntimeRun run(setup);
  const uint64_t others = of_others(run);
  Lived lived;
  lived.outputs = run_sequence(run, chunk);
  lived.peak_bytes = run.device().memory(MemorySpace::kDevice).peak_bytes;
  EXPECT_EQ(of_others(run), others);
  lived.rows = run.runtime().metrics().rows;
  return lived;
}

void expect_same(const Outputs& a, const Outputs& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(same_bits(a[i], b[i])) << what << ": differs at output " << i;
  }
}

// Bytes of a page of small_geometry() in bf16.
constexpr uint64_t kBlock = uint64_t{3} * 2 * kPageTokens * 64;

struct Case {
  std::string name;
  RunSetup setup;
  int chunk;
};

class DeviceRowsOf : public ::testing::TestWithParam<Case> {};

// From the exact budget that host rows need to one that holds copies of all rows.
TEST_P(DeviceRowsOf, EveryBudgetGivesTheSameBits) {
  const auto& [name, setup, chunk] = GetParam();
  const Lived host = live(setup, RowPlacement::kHost, chunk);
  expect_same(host.outputs, live(setup, RowPlacement::kDevice, chunk).outputs, "on the device");
  uint64_t fewest = host.rows.misses + 1;
  for (const uint64_t more :
       {uint64_t{0}, kBlock / 2, 2 * kBlock, 3 * kBlock + 100, 8 * kBlock, 100 * kBlock}) {
    const uint64_t limit = host.peak_bytes + more;
    const Lived got = live(setup, RowPlacement::kAuto, chunk, limit);
    expect_same(host.outputs, got.outputs, std::to_string(more) + " bytes more");
    if (more == 8 * kBlock) fewest = got.rows.misses;
  }
  if (host.rows.misses > 0) {
    EXPECT_LT(fewest, host.rows.misses);
  }
  const Lived unlimited = live(setup, RowPlacement::kAuto, chunk);
  expect_same(host.outputs, unlimited.outputs, "unlimited");
}

INSTANTIATE_TEST_SUITE_P(
    Setups, DeviceRowsOf,
    ::testing::Values(
        Case{"hot_rows", {.hot_rows = 64}, 300}, Case{"few_hot_rows", {.hot_rows = 20}, 70},
        Case{"no_hot_rows", {.hot_rows = 0}, 64},
        Case{"dense_layer", {.hot_rows = 30, .dense_layers = {1}}, 70},
        Case{"coded", {.hot_rows = 64, .row_dtype = RowDType::kInt8, .dense_layers = {1}}, 70},
        Case{"all_dense", {.kind = SelectionKind::kFull}, 45},
        Case{"predictions",
             {.hot_rows = 64, .depth = 2, .prediction_source = PredictionSource::kGoodQueries},
             100},
        Case{"anything_predicted",
             {.hot_rows = 70, .depth = 1, .prediction_source = PredictionSource::kRandom},
             300}),
    [](const auto& one) { return one.param.name; });

TEST(DeviceRows, NothingIsFetchedWhereAllFits) {
  RuntimeRun run({.device = "emulated", .rows = RowPlacement::kAuto});
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, 300, 100);
  run.decode(id, 1, 30);
  EXPECT_EQ(run.runtime().metrics().rows.misses, 0u);
  EXPECT_GT(run.runtime().metrics().rows.hits, 0u);
  EXPECT_EQ(run.runtime().memory().device_rows, 6 * kBlock);
  EXPECT_EQ(run.runtime().memory().host_rows, 6 * kBlock);
  EXPECT_EQ(run.runtime().estimate_memory(330, 100).device_rows, 6 * kBlock);
  run.runtime().free(id);
  EXPECT_EQ(run.runtime().memory().device_rows, 0u);
}

TEST(DeviceRows, TheOldestPagesGoFirst) {
  RunSetup setup{.device = "emulated", .rows = RowPlacement::kAuto, .hot_rows = 64};
  const auto grow = [&](RuntimeRun& run, SequenceId id) {
    run.runtime().reserve(id, 700, 100);
    Outputs all = run.prefill(id, 1, 300, 100);
    add(all, run.decode(id, 1, 400));
    return all;
  };
  setup.rows = RowPlacement::kHost;
  RuntimeRun host(setup);
  const Outputs expected = grow(host, host.runtime().create());
  setup.rows = RowPlacement::kAuto;
  setup.device_memory =
      host.device().memory(MemorySpace::kDevice).peak_bytes + 2 * kBlock + kBlock / 2;
  RuntimeRun run(setup);
  const SequenceId id = run.runtime().create();
  expect_same(expected, grow(run, id), "growing");
  EXPECT_GE(run.runtime().memory().device_rows, 2 * kBlock);
  // Truncation that removes older copies leaves none; truncation within the newest page keeps it.
  run.runtime().truncate(id, 650);
  EXPECT_GE(run.runtime().memory().device_rows, kBlock);
  run.runtime().truncate(id, 100);
  EXPECT_EQ(run.runtime().memory().device_rows, 0u);
  EXPECT_EQ(of_others(run), 0u);
}

TEST(DeviceRows, ASecondSequenceTakesItsShare) {
  RunSetup setup{.device = "emulated", .rows = RowPlacement::kHost, .hot_rows = 64};
  uint64_t least = 0;
  {
    RuntimeRun run(setup);
    for (const uint64_t seed : {1, 2}) run.prefill(run.runtime().create(), seed, 600, 100);
    least = run.device().memory(MemorySpace::kDevice).peak_bytes;
  }
  setup.rows = RowPlacement::kAuto;
  for (const uint64_t more : {uint64_t{0}, 4 * kBlock}) {
    setup.device_memory = least + more;
    RuntimeRun run(setup);
    const SequenceId a = run.runtime().create();
    run.prefill(a, 1, 600, 100);
    const uint64_t alone = run.runtime().memory().device_rows;
    EXPECT_GT(alone, 0u);
    const SequenceId b = run.runtime().create();
    run.prefill(b, 2, 600, 100);
    EXPECT_LT(run.runtime().memory().device_rows, alone);
    EXPECT_EQ(of_others(run), 0u);
  }
}

// Another allocation on the device takes memory from the copies, inside a step too; if the copies
// cannot free enough, it is refused as usual.
TEST(DeviceRows, AnybodysAllocationComesFirst) {
  const RunSetup setup{.device = "emulated",
                       .rows = RowPlacement::kAuto,
                       .hot_rows = 64,
                       .device_memory = uint64_t{1} << 20};
  const auto run_one = [&](bool disturbed) {
    RuntimeRun run(setup);
    const SequenceId id = run.runtime().create();
    run.prefill(id, 1, 900, 100);
    const uint64_t before = run.runtime().memory().device_rows;
    const Part part{id, 1, 900, 1, StepMode::kDecode};
    run.tape().begin({&part, 1});
    Buffer other;
    if (disturbed) {
      const MemoryUse use = run.device().memory(MemorySpace::kDevice);
      const uint64_t left = use.limit_bytes - use.used_bytes;
      other = run.device().allocate(MemorySpace::kDevice, left + before / 2, "somebody else");
      EXPECT_LE(run.runtime().memory().device_rows, before / 2);
      EXPECT_GT(run.runtime().memory().device_rows, 0u);
      EXPECT_THROW(run.device().allocate(MemorySpace::kDevice, left + before, "too much"),
                   BudgetError);
      EXPECT_GT(run.runtime().memory().device_rows, 0u);  // copies are dropped only if that helps
      other = Buffer();
    }
    std::vector<float> out = run.tape().layers({&part, 1});
    run.runtime().end_step();
    Outputs all = run.decode(id, 1, 70);
    all.push_back(std::move(out));
    EXPECT_GT(run.runtime().memory().device_rows, 0u);  // of pages that began since
    return all;
  };
  expect_same(run_one(false), run_one(true), "disturbed");
}

// All steps are enqueued before any of them runs, over two page ends: a copy is freed only after
// the steps that read it.
TEST(DeviceRows, EveryOrderOfStreamsGivesTheSameBits) {
  constexpr int kPrompt = 185;
  const auto run_one = [](RowPlacement rows, const StepPolicy& policy, int depth) {
    DeviceOptions options;
    options.device_memory = uint64_t{16} << 20;
    auto owned = std::make_unique<SteppedDevice>(fifo(), options);
    SteppedDevice& device = *owned;
    RuntimeRun run(std::move(owned), {.rows = rows,
                                      .dense_layers = {1},
                                      .depth = depth,
                                      .prediction_source = PredictionSource::kGoodQueries});
    const SequenceId id = run.runtime().create();
    run.runtime().reserve(id, kPrompt + 75, 100);  // so that no step waits for memory
    run.prefill(id, 1, kPrompt - 1, 100);
    run.decode(id, 1, 1);
    QueuedSteps queued(run.device(), run.runtime(), run.tape());
    for (int i = 0; i < 75; ++i) {
      const Part part{id, 1, kPrompt + i, 1, StepMode::kDecode};
      queued.prepare({&part, 1});
    }
    Buffer other;  // from here on no page finds free memory
    const uint64_t before = run.runtime().memory().device_rows;
    if (rows == RowPlacement::kAuto) {
      const MemoryUse use = device.memory(MemorySpace::kDevice);
      other = device.allocate(MemorySpace::kDevice, use.limit_bytes - use.used_bytes, "the rest");
    }
    device.set_policy(policy);
    queued.enqueue();
    Outputs outputs = queued.finish();
    EXPECT_LE(run.runtime().memory().device_rows, before);
    if (rows == RowPlacement::kAuto) {
      EXPECT_GT(run.runtime().memory().device_rows, 0u);
    }
    return outputs;
  };
  for (const int depth : {0, 1}) {
    const Outputs expected = run_one(RowPlacement::kHost, fifo(), depth);
    for (const StepPolicy& policy :
         {fifo(), lifo(), youngest_stream_first(), starve("write-back"), starve("copy"),
          starve("test compute"), starve("prefetch"), random_order(1), random_order(2)}) {
      expect_same(expected, run_one(RowPlacement::kAuto, policy, depth), "queued");
    }
  }
}

TEST(DeviceRows, OnTheCpuAllIsOneTier) {
  RuntimeRun run({.rows = RowPlacement::kAuto});
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, 300, 100);
  EXPECT_EQ(run.runtime().memory().host_rows, 0u);
  EXPECT_EQ(run.runtime().memory().device_rows, 5 * kBlock);
}

}  // namespace
}  // namespace fasa::testing
