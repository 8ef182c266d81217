// What fetching ahead is for, on the emulated device's clock: rows that were guessed are there when
// they are asked for.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/filled_runtime.h"
#include "scheduler/query_source.h"
#include "tests/support/tape.h"

namespace fasa::testing {
namespace {

constexpr int64_t kTokens = 16384;
constexpr int kSteps = 24;
constexpr int kLayers = 2;

struct DecodeResult {
  double seconds_per_step = 0;
  FetchMetrics metrics;
};

// Queries of all steps and layers in device memory: each keeps 0.9 of the last step's.
class DriftingQueries final : public QuerySource {
 public:
  DriftingQueries(Device& device, const Geometry& geometry, float error)
      : device_(device), geometry_(geometry) {
    const auto width = static_cast<size_t>(geometry.query_heads * geometry.key_dim);
    std::vector<float> truth(width * kSteps * static_cast<size_t>(geometry.layers));
    std::vector<float> guess(truth.size());
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
          guess[at] = weight * (value + error * 2 * noise(at * 2));
        }
      }
    }
    truth_ = upload(truth);
    guess_ = upload(guess);
  }
  void begin_step(int step) { step_ = step; }
  ConstTensorView query(int layer) const { return view(truth_, layer); }

  int max_ahead() const override { return geometry_.layers - 1; }
  ConstTensorView estimate(int layer, int ahead, StreamView stream) override {
    device_.launch(stream, "estimate", [] { return KernelWork{}; });
    return view(guess_, layer + ahead);
  }

 private:
  Buffer upload(const std::vector<float>& values) {
    const size_t bytes = values.size() * sizeof(float);
    Buffer buffer = device_.allocate(MemorySpace::kDevice, bytes, "queries");
    Stream stream = device_.create_stream(StreamPriority::kNormal, "upload");
    device_.copy(buffer.data(), values.data(), bytes, CopyKind::kHostToDevice, stream.view());
    device_.synchronize(stream.view());
    return buffer;
  }
  ConstTensorView view(const Buffer& buffer, int layer) const {
    const int64_t width = int64_t{geometry_.query_heads} * geometry_.key_dim;
    return ConstTensorView::dense(
        buffer.as<float>() + (int64_t{step_} * geometry_.layers + layer) * width, DType::kF32, 1,
        geometry_.query_heads, geometry_.key_dim);
  }

  Device& device_;
  const Geometry geometry_;
  Buffer truth_;
  Buffer guess_;
  int step_ = 0;
};

class Decode {
 public:
  explicit Decode(double link_bandwidth, std::optional<int> depth, int layers = kLayers)
      : geometry_(bench::llama_8b(layers)),
        filled_(options(link_bandwidth), config(depth), geometry_,
                bench::first_chunk_dims(geometry_, 64), kTokens),
        queries_(filled_.device(), geometry_, 0.2f) {
    filled_.runtime().set_query_source(&queries_);
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
      if (step == kSteps / 3) {  // warm
        filled_.runtime().reset_metrics();
        device.record(begin.view(), filled_.stream());
      }
      run_step(step);
    }
    device.record(end.view(), filled_.stream());
    device.synchronize(filled_.stream());
    const int measured = kSteps - kSteps / 3;
    return {(device.seconds_at(end.view()) - device.seconds_at(begin.view())) / measured,
            filled_.runtime().metrics()};
  }

 private:
  static DeviceOptions options(double link_bandwidth) {
    DeviceOptions options;
    options.name = "emulated";
    options.link_bandwidth = link_bandwidth;
    return options;
  }
  static Config config(std::optional<int> depth) {
    Config config;
    config.selection.slice_dtype = SliceDType::kInt2;
    config.prefetch.depth = depth;
    return config;
  }
  void run_step(int step) {
    Runtime& runtime = filled_.runtime();
    queries_.begin_step(step);
    const StepSequence part{filled_.sequence(), 1, StepMode::kDecode};
    runtime.begin_step({&part, 1});
    const auto kv =
        ConstTensorView::dense(kv_.data(), DType::kF32, 1, geometry_.kv_heads, geometry_.key_dim);
    for (int layer = 0; layer < geometry_.layers; ++layer) {
      runtime.append(layer, kv, kv, filled_.stream());
      runtime.attend(layer, queries_.query(layer),
                     TensorView::dense(out_.data(), DType::kF32, 1, geometry_.query_heads,
                                       geometry_.value_dim),
                     nullptr, filled_.stream());
    }
    runtime.end_step();
  }

  Geometry geometry_;
  bench::FilledRuntime filled_;
  DriftingQueries queries_;
  Buffer kv_;
  Buffer out_;
};

void print(const char* what, const DecodeResult& result) {
  const StepCounters& rows = result.metrics.rows;
  std::printf("%s: %.1f us a step, hit rate %.3f, precision %.3f, recall %.3f, speculated %llu\n",
              what, result.seconds_per_step * 1e6, rows.hit_rate(), rows.precision(), rows.recall(),
              (unsigned long long)rows.speculated);
  for (size_t l = 0; l < result.metrics.layers.size(); ++l) {
    const StepCounters& r = result.metrics.layers[l];
    std::printf("   layer %zu: hits %llu misses %llu spec %llu used %llu\n", l,
                (unsigned long long)r.hits, (unsigned long long)r.misses,
                (unsigned long long)r.speculated, (unsigned long long)r.speculated_used);
  }
}

TEST(Prefetch, GuessedRowsAreThere) {
  for (double link : {25e9, 6e9}) {
    print("depth 0", Decode(link, 0).run());
    print("depth 1", Decode(link, 1).run());
    print("depth auto", Decode(link, std::nullopt).run());
  }
  for (int depth = 0; depth <= 4; ++depth) print("6 layers depth", Decode(12e9, depth, 6).run());
  print("6 layers depth auto", Decode(12e9, std::nullopt, 6).run());
}

}  // namespace
}  // namespace fasa::testing
