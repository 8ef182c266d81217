// Decode steps as CUDA graphs, over a replay device on the host that runs the unordered nodes of a
// graph in any order: the bits of steps enqueued one by one, whatever happens between the steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "offload/timeline/timeline.h"
#include "runtime/base/error.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/gpu.h"
#include "tests/support/graphed_steps.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Outputs = std::vector<std::vector<float>>;
using Step = std::function<std::vector<float>(std::span<const Part>)>;

constexpr int kMaxTokens = 3;

std::unique_ptr<Device> open_fake(FakeCuda& fake, uint64_t device_memory) {
  DeviceOptions options = cuda_options();
  options.device_memory = device_memory;
  return open_device(options, fake.platform());
}

// Sequences that cross page ends together, are forked, truncated and freed, and an aborted step.
class Script {
 public:
  Script(RuntimeRun& run, Step step) : run_(run), step_(std::move(step)) {}

  Outputs play() {
    const SequenceId a = prompt(1, 200), b = prompt(2, 130);
    steps({{a, 1}, {b, 2}}, 20);
    const SequenceId c = run_.runtime().fork(a, 150);
    steps({{a, 1}, {b, 2}, {c, 3}}, 10);
    run_.runtime().truncate(a, 190);
    steps({{b, 2}, {a, 4}, {c, 3}}, 10);
    give_up({{a, 4}, {b, 2}});
    steps({{a, 4}, {b, 2}}, 6);
    run_.runtime().free(c);
    steps({{a, 4}, {b, 2}}, 70);
    return std::move(outputs_);
  }

 private:
  struct Named {
    SequenceId id;
    uint64_t seed;
  };
  SequenceId prompt(uint64_t seed, int64_t tokens) {
    const SequenceId id = run_.runtime().create();
    run_.prefill(id, seed, tokens, 67);
    return id;
  }
  std::vector<Part> parts(const std::vector<Named>& sequences) {
    std::vector<Part> parts;
    for (const Named& named : sequences) {
      parts.push_back(
          {named.id, named.seed, run_.runtime().length(named.id), 1, StepMode::kDecode});
    }
    return parts;
  }
  void steps(const std::vector<Named>& sequences, int count) {
    for (int i = 0; i < count; ++i) outputs_.push_back(step_(parts(sequences)));
  }
  void give_up(const std::vector<Named>& sequences) {
    const std::vector<Part> given_up = parts(sequences);
    run_.tape().begin(given_up);
    run_.tape().layers(given_up, true, 2);
    run_.runtime().abort_step();
  }

  RuntimeRun& run_;
  Step step_;
  Outputs outputs_;
};

// Steps enqueued one by one on the cpu device: all placements and predictors give these bits.
Outputs expected(RunSetup setup) {
  setup.device = "cpu";
  RuntimeRun run(setup);
  return Script(run, [&](std::span<const Part> parts) { return run.tape().step(parts); }).play();
}

void expect_same(const Outputs& a, const Outputs& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(same_bits(a[i], b[i])) << "step " << i;
}

struct Replay {
  Outputs outputs;
  GraphMetrics graphs;
  FetchMetrics rows;
  int64_t enqueued = 0;
};

// Allocates and frees memory on a thread of its own, as another runtime on the same device does.
class BusyNeighbour {
 public:
  explicit BusyNeighbour(Device& device)
      : thread_([this, &device] {
          while (!done_) {
            for (const MemorySpace space : {MemorySpace::kDevice, MemorySpace::kHost}) {
              const Buffer buffer = device.allocate(space, 4096, "neighbour");
            }
            ++rounds_;
          }
        }) {}
  ~BusyNeighbour() {
    done_ = true;
    thread_.join();
    EXPECT_GT(rounds_, 0);
  }

 private:
  std::atomic<bool> done_ = false;
  std::atomic<int> rounds_ = 0;
  std::thread thread_;
};

Replay play(std::unique_ptr<Device> device, const RunSetup& setup, bool busy = false) {
  Device& shared = *device;
  RuntimeRun run(std::move(device), setup);
  std::optional<BusyNeighbour> neighbour;
  if (busy) neighbour.emplace(shared);
  GraphedSteps steps(run.device(), run.runtime(), run.tape().stream(), kMaxTokens);
  Replay replay;
  replay.outputs =
      Script(run, [&](std::span<const Part> parts) { return steps.step(parts); }).play();
  replay.graphs = run.runtime().graph_metrics();
  replay.rows = run.runtime().metrics();
  replay.enqueued = steps.enqueued;
  return replay;
}

constexpr FakeCuda::GraphOrder kOrders[] = {FakeCuda::GraphOrder::kFirstComeFirst,
                                            FakeCuda::GraphOrder::kLastComeFirst,
                                            FakeCuda::GraphOrder::kShuffled};

struct NamedSetup {
  std::string name;
  RunSetup setup;
};

std::vector<NamedSetup> ways() {
  return {
      {"host rows", {}},
      {"device rows", {.rows = RowPlacement::kDevice}},
      {"rows where there is room", {.rows = RowPlacement::kAuto}},
      {"no hot rows, waves", {.hot_rows = 0, .fac_tokens = 170}},
      {"few hot rows, four streams", {.hot_rows = 33, .streams = 4}},
      {"heads in groups", {.head_groups = 2}},
      {"heads in groups on one lane", {.streams = 1, .head_groups = 2}},
      {"runners-up of the last step",
       {.hot_rows = 20, .depth = 1, .predictor = PredictorKind::kRunnersUp}},
      {"all of short contexts, then a part", {.rows = RowPlacement::kDevice, .fac_tokens = 230}},
      {"a dense layer", {.rows = RowPlacement::kDevice, .dense_layers = {1}}},
      {"shared rows", {.head_groups = 2, .shared_layers = 2}},
      {"shared rows, runners-up of the last step",
       {.hot_rows = 20, .shared_layers = 1, .depth = 1, .predictor = PredictorKind::kRunnersUp}}};
}

void expect_nothing_left(const FakeCuda& fake) {
  EXPECT_EQ(fake.device_bytes, 0u);
  EXPECT_EQ(fake.live_graphs, 0);
  EXPECT_EQ(fake.live_streams, 0);
  EXPECT_EQ(fake.live_events, 0);
}

TEST(CudaGraphs, LaunchedStepsHaveTheBitsOfEnqueuedOnes) {
  for (const NamedSetup& way : ways()) {
    SCOPED_TRACE(way.name);
    const Outputs base = expected(way.setup);
    for (const FakeCuda::GraphOrder order : kOrders) {
      FakeCuda fake;
      fake.graph_order = order;
      {
        const Replay replay = play(open_fake(fake), way.setup);
        expect_same(base, replay.outputs);
        // Two slots and several shapes: each is enqueued twice, and captured the second time.
        // Steps that are measured for prefetching are enqueued.
        EXPECT_GT(replay.graphs.launched, 70u);
        EXPECT_LE(replay.graphs.recorded, 20u);
        EXPECT_EQ(replay.enqueued + static_cast<int64_t>(replay.graphs.launched),
                  static_cast<int64_t>(base.size() + replay.graphs.recorded));
        EXPECT_EQ(replay.rows.decode_steps, base.size());
      }
      expect_nothing_left(fake);
    }
  }
}

TEST(CudaGraphs, MetricsAreThoseOfEnqueuedSteps) {
  FakeCuda direct, graphed;
  const Replay a = play(open_fake(direct), {.graphs = false});
  const Replay b = play(open_fake(graphed), {});
  EXPECT_EQ(a.graphs.launched, 0u);
  EXPECT_GT(b.graphs.launched, 0u);
  EXPECT_EQ(a.rows.rows.hits, b.rows.rows.hits);
  EXPECT_EQ(a.rows.rows.misses, b.rows.rows.misses);
  EXPECT_EQ(a.rows.bytes.write_back, b.rows.bytes.write_back);
  EXPECT_EQ(direct.calls["launch_graph"], 0);
  EXPECT_LT(graphed.calls["wait"], direct.calls["wait"]);
}

TEST(CudaGraphs, LookAheadIsPartOfThem) {
  for (const int depth : {1, 2}) {
    const RunSetup setup{.hot_rows = 128,  // eight sets, so that runners-up are listed
                         .fac_tokens = 16,
                         .depth = depth,
                         .predictor = PredictorKind::kRunnersUp};
    const Outputs base = expected({.fac_tokens = 16});
    for (const FakeCuda::GraphOrder order : kOrders) {
      SCOPED_TRACE(depth);
      FakeCuda fake;
      fake.graph_order = order;
      const Replay replay = play(open_fake(fake), setup);
      expect_same(base, replay.outputs);
      EXPECT_GT(replay.graphs.launched, 40u);
      EXPECT_GT(replay.rows.rows.prefetched, 0u);
      EXPECT_GT(replay.rows.rows.prefetched_used, 0u);
    }
  }
}

// Dense layers stream host rows page by page: the copies are not known when a graph is captured.
TEST(CudaGraphs, DenseLayersWithRowsOnTheHostAreEnqueued) {
  const RunSetup setup{.dense_layers = {1}};
  FakeCuda fake;
  const Replay replay = play(open_fake(fake), setup);
  expect_same(expected(setup), replay.outputs);
  EXPECT_EQ(replay.graphs.recorded, 0u);
}

// A longer context takes one more wave, so another graph.
TEST(CudaGraphs, WavesOverAllTokensGrow) {
  RunSetup setup{.rows = RowPlacement::kDevice, .kind = SelectionKind::kFull};
  const auto play_it = [&](RuntimeRun& run, const Step& step) {
    const SequenceId id = run.runtime().create();
    run.prefill(id, 1, 4090, 4090);
    Outputs outputs;
    for (int i = 0; i < 14; ++i) {
      const Part part{id, 1, run.runtime().length(id), 1, StepMode::kDecode};
      outputs.push_back(step({&part, 1}));
    }
    return outputs;
  };
  RuntimeRun cpu(setup);
  const Outputs base =
      play_it(cpu, [&](std::span<const Part> parts) { return cpu.tape().step(parts); });
  FakeCuda fake;
  RuntimeRun run(open_fake(fake), setup);
  GraphedSteps steps(run.device(), run.runtime(), run.tape().stream(), 1);
  expect_same(base, play_it(run, [&](std::span<const Part> parts) { return steps.step(parts); }));
  EXPECT_EQ(run.runtime().graph_metrics().recorded, 4u);  // two slots, one wave and two
}

// A decode of one sequence on the replay device, call by call.
struct Decode {
  explicit Decode(std::unique_ptr<Device> device, const RunSetup& setup = {.depth = 0},
                  int prompt = 100)
      : run(std::move(device), setup),
        steps(run.device(), run.runtime(), run.tape().stream(), 1),
        id(run.runtime().create()) {
    run.prefill(id, 1, prompt, prompt);
  }
  std::vector<float> step() {
    const Part part{id, 1, run.runtime().length(id), 1, StepMode::kDecode};
    return steps.step({&part, 1});
  }
  GraphMetrics graphs() const { return run.runtime().graph_metrics(); }

  mutable RuntimeRun run;
  GraphedSteps steps;
  SequenceId id;
};

Outputs decoded(int count) {
  RuntimeRun run({});
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, 100, 100);
  return run.decode(id, 1, count);
}

// A shape that the runtime cannot capture is no failure: the step is enqueued.
TEST(CudaGraphs, ARefusedCaptureChangesNothing) {
  const Outputs base = decoded(8);
  const struct {
    const char* call;
    int64_t nth;
  } refusals[] = {{"begin_capture", 1}, {"end_capture", 1}, {"wait", 1},  {"wait", 8},
                  {"record", 3},        {"record", 15},     {"wait", 12}, {"instantiate_graph", 1},
                  {"end_capture", 2}};
  for (const auto& refusal : refusals) {
    SCOPED_TRACE(std::string(refusal.call) + " " + std::to_string(refusal.nth));
    FakeCuda fake;
    {
      Decode decode(open_fake(fake));
      Outputs outputs;
      for (int i = 0; i < 2; ++i) outputs.push_back(decode.step());
      const int64_t before = fake.calls[refusal.call];
      // Throws from the capture's first layer on.
      const auto fail = [&] {
        fake.fail_call(refusal.call, refusal.nth, cuda_status::kNotSupported);
      };
      if (std::string(refusal.call) == "begin_capture") {
        fail();
      } else {
        decode.steps.on_layer = [&](int) {
          fail();
          decode.steps.on_layer = nullptr;
        };
      }
      for (int i = 2; i < 8; ++i) outputs.push_back(decode.step());
      expect_same(base, outputs);
      EXPECT_GT(fake.calls[refusal.call], before);
      EXPECT_GE(decode.graphs().launched, 2u);  // of the other slot
    }
    expect_nothing_left(fake);
  }
}

// An exception from the caller during a capture ends the step as it does elsewhere.
TEST(CudaGraphs, TheCallersFailureInACaptureLeavesTheSequenceAsItWas) {
  const Outputs base = decoded(8);
  FakeCuda fake;
  {
    Decode decode(open_fake(fake));
    Outputs outputs;
    for (int i = 0; i < 2; ++i) outputs.push_back(decode.step());
    for (const int layer : {0, 1, 2}) {
      decode.steps.on_layer = [layer](int at) {
        if (at == layer) throw UsageError("the caller's");
      };
      EXPECT_THROW(decode.step(), UsageError);
      EXPECT_EQ(decode.run.runtime().length(decode.id), 102);
    }
    decode.steps.on_layer = nullptr;
    for (int i = 2; i < 8; ++i) outputs.push_back(decode.step());
    expect_same(base, outputs);
    EXPECT_GT(decode.graphs().launched, 0u);
  }
  expect_nothing_left(fake);
}

TEST(CudaGraphs, WhatHasNoPlaceInACaptureIsNamed) {
  const auto said = [](const std::function<void(Device&, StreamView other)>& deed) {
    FakeCuda fake;
    Decode decode(open_fake(fake));
    Device& device = decode.run.device();
    const Stream other = device.create_stream(StreamPriority::kNormal, "other");
    for (int i = 0; i < 2; ++i) decode.step();
    decode.steps.on_layer = [&](int layer) {
      if (layer == 1) deed(device, other.view());
    };
    try {
      decode.step();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(said([](Device& d, StreamView) { d.allocate(MemorySpace::kDevice, 9, "a test"); }),
              HasSubstr("allocating memory is not possible while a graph is being recorded"));
  EXPECT_THAT(said([](Device& d, StreamView other) { d.synchronize(other); }),
              HasSubstr("waiting for a stream is not possible while a graph is being recorded"));
  EXPECT_THAT(said([](Device& d, StreamView other) { d.enqueue(GatherParams{}, other); }),
              AllOf(HasSubstr("'other'"), HasSubstr("while a graph")));
}

// A failed operation of a graph counts as work under way, and teardown is clean.
TEST(CudaGraphs, AFailureOfALaunchEndsInOrder) {
  int64_t failed = 0;
  for (bool all = false; !all; ++failed) {
    FakeCuda fake;
    std::string said;
    {
      Decode decode(open_fake(fake));
      for (int i = 0; i < 6; ++i) decode.step();
      EXPECT_GT(decode.graphs().launched, 0u);
      fake.fail_operation(failed + 1);
      try {
        for (int i = 0; i < 6; ++i) decode.step();
        all = true;
      } catch (const DeviceError& error) {
        said = error.what();
      }
    }
    if (!all) {
      ASSERT_THAT(said, HasSubstr("cudaErrorIllegalAddress")) << failed + 1;
    }
    expect_nothing_left(fake);
  }
  EXPECT_GT(failed, 30);
}

TEST(CudaGraphs, TheirMemoryIsCountedAndGivenUpFirst) {
  FakeCuda fake;
  fake.graph_node_bytes = 4096;
  {
    Decode decode(open_fake(fake, 4 << 20));
    decode.step();
    const uint64_t without = decode.run.runtime().memory().device_scratch;
    for (int i = 1; i < 6; ++i) decode.step();
    const GraphMetrics graphs = decode.graphs();
    EXPECT_EQ(graphs.recorded, 2u);
    EXPECT_GT(graphs.device_bytes, 2u * 12 * 4096);
    EXPECT_GE(decode.run.runtime().memory().device_scratch, without + graphs.device_bytes);
    Device& device = decode.run.device();
    const MemoryUse use = device.memory(MemorySpace::kDevice);
    const Buffer rest = device.allocate(
        MemorySpace::kDevice, use.limit_bytes - use.used_bytes + graphs.device_bytes, "a test");
    EXPECT_EQ(decode.graphs().device_bytes, 0u);
    // No memory for graphs: steps are enqueued.
    const Outputs base = decoded(12);
    for (int i = 6; i < 12; ++i)
      ASSERT_TRUE(same_bits(decode.step(), base[static_cast<size_t>(i)]));
    EXPECT_EQ(decode.graphs().launched, graphs.launched);
  }
  expect_nothing_left(fake);
}

// Pages that begin while nothing is captured fill the free memory with device copies.
TEST(CudaGraphs, FindRoomBesideDeviceCopies) {
  RuntimeRun cpu({});
  const SequenceId cpu_id = cpu.runtime().create();
  cpu.prefill(cpu_id, 1, 20, 20);
  const Outputs base = cpu.decode(cpu_id, 1, 190);
  int made_room = 0;
  // Below 144 KiB graphs would not fit even without copies.
  for (uint64_t limit = 144 << 10; limit < 288 << 10; limit += 8 << 10) {
    FakeCuda fake;
    fake.graph_node_bytes = 512;
    try {
      Timeline timeline;  // stays set if a step throws for want of memory
      Decode decode(open_fake(fake, limit), {.rows = RowPlacement::kAuto}, 20);
      decode.run.device().set_timeline(&timeline);
      for (size_t i = 0; i < 180; ++i) ASSERT_TRUE(same_bits(decode.step(), base[i])) << i;
      decode.run.device().set_timeline(nullptr);
      for (size_t i = 180; i < 190; ++i) ASSERT_TRUE(same_bits(decode.step(), base[i])) << i;
      const auto recorded = static_cast<int64_t>(decode.graphs().recorded);
      EXPECT_EQ(recorded, 2);
      made_room += fake.calls["instantiate_graph"] > recorded ? 1 : 0;
    } catch (const BudgetError&) {
      continue;  // too little memory even without copies
    }
  }
  EXPECT_GT(made_room, 3);
}

// The caller changes to a new stream, which may have the old one's address.
TEST(CudaGraphs, AreMadeAnewForAnotherStream) {
  const Outputs base = decoded(24);
  FakeCuda fake;
  RuntimeRun run(open_fake(fake), {.depth = 0});
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, 100, 100);
  size_t at = 0;
  for (int i = 0; i < 4; ++i) {
    const Stream stream = run.device().create_stream(StreamPriority::kNormal, "another");
    GraphedSteps steps(run.device(), run.runtime(), stream.view(), 1);
    for (int j = 0; j < 6; ++j, ++at) {
      const Part part{id, 1, run.runtime().length(id), 1, StepMode::kDecode};
      ASSERT_TRUE(same_bits(steps.step({&part, 1}), base[at])) << at;
    }
  }
  EXPECT_GE(run.runtime().graph_metrics().recorded, 8u);
}

TEST(CudaGraphs, StepsOnATimelineAreEnqueued) {
  FakeCuda fake;
  Decode decode(open_fake(fake));
  const Outputs base = decoded(12);
  for (int i = 0; i < 6; ++i) decode.step();
  const GraphMetrics before = decode.graphs();
  EXPECT_GT(before.launched, 0u);
  Timeline timeline;
  decode.run.device().set_timeline(&timeline);
  for (int i = 6; i < 9; ++i) ASSERT_TRUE(same_bits(decode.step(), base[static_cast<size_t>(i)]));
  decode.run.device().set_timeline(nullptr);
  EXPECT_EQ(decode.graphs().launched, before.launched);
  EXPECT_FALSE(timeline.entries().empty());
  for (int i = 9; i < 12; ++i) ASSERT_TRUE(same_bits(decode.step(), base[static_cast<size_t>(i)]));
  EXPECT_GT(decode.graphs().launched, before.launched);
}

TEST(CudaGraphs, AreOneCallAStep) {
  RuntimeRun run({});
  EXPECT_THROW(run.runtime().run_layers({}, {}, [] {}), UsageError);
}

void expect_same_beside_a_neighbour(const std::function<std::unique_ptr<Device>()>& open) {
  RunSetup direct{.depth = 0};
  direct.graphs = false;
  const Replay a = play(open(), direct);
  const Replay b = play(open(), {}, true);
  expect_same(a.outputs, b.outputs);
  EXPECT_GT(b.graphs.launched, 70u);
}

TEST(CudaGraphs, AnotherThreadMayAllocateAndFree) {
  FakeCuda fakes[2];
  int next = 0;
  expect_same_beside_a_neighbour([&] { return open_fake(fakes[next++]); });
}

class CudaGraphsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override { FASA_NEEDS_GPU(); }
};

TEST_F(CudaGraphsOnGpu, LaunchedStepsHaveTheBitsOfEnqueuedOnes) {
  DeviceOptions options;
  options.name = "cuda:0";
  options.kernel_times = false;
  for (const NamedSetup& way : ways()) {
    SCOPED_TRACE(way.name);
    RunSetup direct = way.setup;
    direct.graphs = false;
    const Replay a = play(open_device(options), direct);
    const Replay b = play(open_device(options), way.setup);
    expect_same(a.outputs, b.outputs);
    EXPECT_GT(b.graphs.launched, 70u);
  }
}

TEST_F(CudaGraphsOnGpu, AnotherThreadMayAllocateAndFree) {
  expect_same_beside_a_neighbour([] {
    DeviceOptions options;
    options.name = "cuda:0";
    return open_device(options);
  });
}

}  // namespace
}  // namespace fasa::testing
