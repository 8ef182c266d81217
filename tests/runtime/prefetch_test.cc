// The benefit of prefetching, on the emulated device's clock: predicted rows have arrived when they
// are selected.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.h"
#include "tests/support/filled_runtime.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

constexpr int kSteps = 74;
constexpr int kWarm = 56;  // steps before measuring, so that the depth has settled

struct DecodeCase {
  double link_bandwidth = 25e9;
  std::optional<int> depth = std::nullopt;
  float error = 0.2f;  // of the predicted queries
  bool random = false;
  int layers = 2;
  int64_t tokens = 16384;
  std::optional<int> hot_rows = std::nullopt;
  std::optional<int> head_groups = std::nullopt;
};

struct DecodeResult {
  double seconds_per_step = 0;
  FetchMetrics metrics;
};

// Queries of all steps and layers in device memory: each has a correlation of 0.9 with the step
// before.
class DriftingQueries final : public QueryPredictor {
 public:
  DriftingQueries(Device& device, const Geometry& geometry, float error)
      : QueryPredictor(device), geometry_(geometry) {
    const auto width = static_cast<size_t>(geometry.query_heads * geometry.key_dim);
    std::vector<float> truth(width * kSteps * static_cast<size_t>(geometry.layers));
    std::vector<float> prediction(truth.size());
    for (size_t layer = 0; layer < static_cast<size_t>(geometry.layers); ++layer) {
      for (size_t i = 0; i < width; ++i) {
        float value = 0;
        for (size_t step = 0; step < kSteps; ++step) {
          const size_t at = (step * static_cast<size_t>(geometry.layers) + layer) * width + i;
          const float fresh = 2 * noise(at * 2 + 1);
          value = step == 0 ? fresh : 0.9f * value + std::sqrt(1 - 0.81f) * fresh;
          const size_t dim =
              i % static_cast<size_t>(geometry.key_dim) % static_cast<size_t>(geometry.key_dim / 2);
          const float weight = dim < 8 ? 1.0f : 0.15f;  // of the frequency chunk
          truth[at] = weight * value;
          prediction[at] = weight * (value + error * 2 * noise(at * 2));
        }
      }
    }
    truth_ = upload(truth);
    prediction_ = upload(prediction);
  }
  void begin_step(int step) { step_ = step; }
  ConstTensorView query(int layer) const { return view(truth_, layer); }

  int max_depth() const override { return geometry_.layers - 1; }
  ConstTensorView estimate(int layer, int ahead, StreamView stream) override {
    device().launch(stream, "estimate", [] { return KernelWork{}; });
    return view(prediction_, layer + ahead);
  }

 private:
  Buffer upload(const std::vector<float>& values) {
    const size_t bytes = values.size() * sizeof(float);
    Buffer buffer = device().allocate(MemorySpace::kDevice, bytes, "queries");
    Stream stream = device().create_stream(StreamPriority::kNormal, "upload");
    device().copy(buffer.data(), values.data(), bytes, CopyKind::kHostToDevice, stream.view());
    device().synchronize(stream.view());
    return buffer;
  }
  ConstTensorView view(const Buffer& buffer, int layer) const {
    const int64_t width = int64_t{geometry_.query_heads} * geometry_.key_dim;
    return ConstTensorView::dense(
        buffer.as<float>() + (int64_t{step_} * geometry_.layers + layer) * width, DType::kF32, 1,
        geometry_.query_heads, geometry_.key_dim);
  }

  const Geometry geometry_;
  Buffer truth_;
  Buffer prediction_;
  int step_ = 0;
};

class Decode {
 public:
  explicit Decode(const DecodeCase& setup)
      : geometry_(llama_8b(setup.layers)),
        filled_(options(setup), config(setup), geometry_, first_chunk_dims(geometry_, 64),
                setup.tokens),
        queries_(filled_.device(), geometry_, setup.error),
        random_(filled_.device(), 3) {
    if (setup.random) {
      filled_.runtime().set_predictor(&random_);
    } else {
      filled_.runtime().set_predictor(&queries_);
    }
    const auto kv = static_cast<size_t>(geometry_.kv_heads * geometry_.key_dim) * sizeof(float);
    const auto out = static_cast<size_t>(geometry_.query_heads * geometry_.key_dim) * sizeof(float);
    kv_ = filled_.device().allocate(MemorySpace::kDevice, kv, "key and value");
    out_ = filled_.device().allocate(MemorySpace::kDevice, out, "output");
    filled_.device().fill(kv_.data(), 0, kv, filled_.stream());
  }

  DecodeResult run() {
    Device& device = filled_.device();
    Event begin = device.create_event();
    Event end = device.create_event();
    for (int step = 0; step < kSteps; ++step) {
      if (step == kWarm) {
        filled_.runtime().reset_metrics();
        device.record(begin.view(), filled_.stream());
      }
      run_step(step);
    }
    device.record(end.view(), filled_.stream());
    device.synchronize(filled_.stream());
    return {(device.seconds_at(end.view()) - device.seconds_at(begin.view())) / (kSteps - kWarm),
            filled_.runtime().metrics()};
  }

  // Seconds that each layer's attend takes in the first step.
  std::vector<double> layer_seconds() {
    Device& device = filled_.device();
    std::vector<Event> events;
    for (int i = 0; i < 2 * geometry_.layers; ++i) events.push_back(device.create_event());
    run_step(0, &events);
    std::vector<double> seconds;
    for (size_t i = 0; i < events.size(); i += 2) {
      seconds.push_back(device.seconds_at(events[i + 1].view()) -
                        device.seconds_at(events[i].view()));
    }
    return seconds;
  }
  Runtime& runtime() { return filled_.runtime(); }

 private:
  static DeviceOptions options(const DecodeCase& setup) {
    DeviceOptions options;
    options.name = "emulated";
    options.link_bandwidth = setup.link_bandwidth;
    return options;
  }
  static Config config(const DecodeCase& setup) {
    Config config;
    config.selection.slice_dtype = SliceDType::kInt2;
    config.selection.fac_tokens = {{.tokens = 320, .share = 0}};
    config.selection.low_bit_tokens = {.tokens = 1024, .share = 0};
    config.prefetch.depth = setup.depth;
    config.prefetch.head_groups = setup.head_groups;
    config.placement.hot_rows = setup.hot_rows;
    return config;
  }
  void run_step(int step, std::vector<Event>* events = nullptr) {
    Runtime& runtime = filled_.runtime();
    queries_.begin_step(step);
    const StepSequence part{filled_.sequence(), 1, StepMode::kDecode};
    runtime.begin_step({&part, 1});
    const auto kv =
        ConstTensorView::dense(kv_.data(), DType::kF32, 1, geometry_.kv_heads, geometry_.key_dim);
    const auto record = [&](int index) {
      if (events == nullptr) return;
      filled_.device().record(events->at(static_cast<size_t>(index)).view(), filled_.stream());
    };
    for (int layer = 0; layer < geometry_.layers; ++layer) {
      runtime.append(layer, kv, kv, filled_.stream());
      record(2 * layer);
      runtime.attend(layer, queries_.query(layer),
                     TensorView::dense(out_.data(), DType::kF32, 1, geometry_.query_heads,
                                       geometry_.value_dim),
                     nullptr, filled_.stream());
      record(2 * layer + 1);
    }
    runtime.end_step();
  }

  Geometry geometry_;
  FilledRuntime filled_;
  DriftingQueries queries_;
  RandomPredictor random_;
  Buffer kv_;
  Buffer out_;
};

DecodeResult measure(const char* what, const DecodeCase& setup) {
  const DecodeResult result = Decode(setup).run();
  const StepCounters& rows = result.metrics.rows;
  ::testing::Test::RecordProperty(what,
                                  fmt::format("{:.1f} us a step", result.seconds_per_step * 1e6));
  fmt::print("{}: {:.1f} us a step, hit rate {:.3f}, accuracy {:.3f}, coverage {:.3f}\n", what,
             result.seconds_per_step * 1e6, rows.hit_rate(), rows.accuracy(), rows.coverage());
  return result;
}

// All heads in one group: with several groups, most of the transfer is hidden even without
// predictions. A prediction costs a select, so the link is slow.
constexpr double kSlowLink = 5e9;

TEST(Prefetch, PredictedRowsAreThere) {
  const DecodeResult off =
      measure("off", {.link_bandwidth = kSlowLink, .depth = 0, .head_groups = 1});
  const DecodeResult one =
      measure("depth 1", {.link_bandwidth = kSlowLink, .depth = 1, .head_groups = 1});
  EXPECT_EQ(off.metrics.rows.prefetched, 0u);
  EXPECT_LT(one.seconds_per_step, 0.98 * off.seconds_per_step);
  EXPECT_GT(one.metrics.hit_rate(), off.metrics.hit_rate() + 0.03);
  EXPECT_EQ(one.metrics.layers[0].prefetched, 0u);  // layer 0 has no predictions
  EXPECT_GT(one.metrics.layers[1].coverage(), 0.25);
  EXPECT_GT(one.metrics.layers[1].accuracy(), 0.2);
  EXPECT_EQ(one.metrics.bytes.prefetch, one.metrics.rows.prefetched * 512);
  EXPECT_EQ(one.metrics.bytes.miss, one.metrics.fetched_bytes);
  EXPECT_EQ(one.metrics.bytes.write_back, uint64_t{kSteps - kWarm} * 2 * 8 * 512);
}

// A layer waits for its own rows, not for rows predicted for later layers.
TEST(Prefetch, MissesOvertakePredictions) {
  constexpr double kLink = 1e9;
  const DecodeCase near{
      .link_bandwidth = kLink, .depth = 1, .random = true, .layers = 4, .tokens = 4096};
  DecodeCase far = near;
  far.depth = 3;  // while layer 1 fetches its misses, the predictions for 2 and 3 are on the link
  Decode one(near);
  Decode three(far);
  const double alone = one.layer_seconds()[1];
  const double contended = three.layer_seconds()[1];
  const StepCounters predicted = three.runtime().metrics().layers[2];
  EXPECT_EQ(one.runtime().metrics().layers[1].misses, three.runtime().metrics().layers[1].misses);
  const double crowd = 2 * static_cast<double>(predicted.prefetched) * 512 / kLink;
  constexpr double kChunk = 65536 / kLink;  // a chunk under way finishes first
  ASSERT_GT(crowd, 10 * kChunk);
  EXPECT_LT(contended, alone + 2 * kChunk);
}

// Scratch for predictions is counted: memory from reserve() suffices for all later steps.
TEST(Prefetch, ReservedMemorySuffices) {
  RuntimeRun run({.device = "emulated",
                  .hot_rows = 200,
                  .depth = 2,
                  .prediction_source = PredictionSource::kRandom});
  const SequenceId id = run.runtime().create();
  run.runtime().reserve(id, 400, 64);
  const uint64_t held = run.runtime().memory().device_total();
  run.prefill(id, 1, 380, 64);
  run.decode(id, 1, 20);
  EXPECT_LE(run.runtime().memory().device_total(), held);
  EXPECT_GT(run.runtime().metrics().rows.prefetched, 0u);
  RuntimeRun plain({.device = "emulated", .hot_rows = 200, .depth = 0});
  EXPECT_GT(run.runtime().estimate_memory(400, 1).device_scratch,
            plain.runtime().estimate_memory(400, 1).device_scratch);
}

class HotRows : public ::testing::Test {
 protected:
  // Bytes of hot rows that a sequence of `tokens` tokens gets with this device memory; 0 if the
  // sequence does not fit.
  static uint64_t held(std::optional<uint64_t> device_memory, int64_t tokens = 3000) {
    RuntimeRun run({.device = "emulated",
                    .hot_rows = std::nullopt,
                    .link_bandwidth = 1e7,
                    .device_memory = device_memory});
    const SequenceId id = run.runtime().create();
    // The memory of the tape's tensors.
    Buffer inputs = run.device().allocate(MemorySpace::kDevice, 96 << 10, "test inputs");
    try {
      run.runtime().reserve(id, tokens, 50);
    } catch (const BudgetError&) {
      return 0;
    }
    inputs = Buffer();
    EXPECT_EQ(run.runtime().memory().device_total(),
              run.device().memory(MemorySpace::kDevice).used_bytes);
    run.prefill(id, 1, 200, 50);
    run.decode(id, 1, 3);
    const KvMemory memory = run.runtime().memory();
    return memory.device_hot_rows + memory.device_extra;
  }
};

TEST_F(HotRows, AsManyAsFit) {
  const uint64_t all = held(std::nullopt);
  uint64_t last = 0;
  int between = 0;
  for (uint64_t memory = 100'000; memory < 1'300'000; memory += 8'000) {
    const uint64_t now = held(memory);
    EXPECT_GE(now, last) << memory;  // more memory, more hot rows
    EXPECT_LE(now, all);
    between += now > 0 && now < all ? 1 : 0;
    last = now;
  }
  EXPECT_EQ(last, all);
  EXPECT_GT(between, 2);
}

}  // namespace
}  // namespace fasa::testing
