// A runtime over a small geometry, opened with many setups.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "offload/open_device.h"
#include "runtime/fasa.hpp"
#include "tests/support/faulty_device.h"
#include "tests/support/prediction_sources.h"
#include "tests/support/tape.h"

namespace fasa::testing {

// The source of predictions: the configured predictor without a query source or with one of that
// error, or a predictor of random sets.
enum class PredictionSource : uint8_t { kNone, kGoodQueries, kPoorQueries, kRandom };

// As a number of low-bit tokens: all others.
inline constexpr int64_t kAllOthers = -1;
inline TokenCount low_bit_count(int64_t tokens) {
  return tokens == kAllOthers ? TokenCount{.tokens = 0, .share = 1}
                              : TokenCount{.tokens = tokens, .share = 0};
}

struct RunSetup {
  std::string device = "cpu";
  int threads = 2;
  RowPlacement rows = RowPlacement::kHost;
  std::optional<int> hot_rows = 64;  // none = auto
  int streams = 2;
  std::optional<int> head_groups = std::nullopt;  // none = auto
  int64_t fac_tokens = 48;
  int64_t low_bit_tokens = 0;
  SliceDType value_codes = SliceDType::kInt2;
  SliceDType slice = SliceDType::kInt2;
  int tip_chunks = 0;  // 0 = all
  int fine_chunks = 0;
  SelectionKind kind = SelectionKind::kFasa;
  RowDType row_dtype = DType::kBF16;
  std::vector<int> dense_layers = {};
  int shared_layers = 0;                    // Geometry::shared_layers
  bool copies = false;                      // these layers store copies instead: the same bits
  std::optional<int> depth = std::nullopt;  // none = auto
  PredictorKind predictor = PredictorKind::kAuto;
  PredictionSource prediction_source = PredictionSource::kNone;
  std::optional<double> link_bandwidth = std::nullopt;
  std::optional<uint64_t> device_memory = std::nullopt;
  std::optional<uint64_t> host_memory = std::nullopt;
  bool graphs = true;
  int32_t max_steps = kMaxSteps;
};

// For rows of a given format: coded rows need vectors of at least 32 dimensions.
inline Geometry small_geometry(RowDType rows = RowDType()) {
  return {.layers = 3,
          .kv_heads = 2,
          .query_heads = 6,
          .key_dim = rows.is_coded() ? 34 : 20,
          .value_dim = rows.is_coded() ? 33 : 12,
          .rotary_dims = rows.is_coded() ? 34 : 20,
          .rotary_layout = RotaryLayout::kHalf,
          .scale = 0.25f,
          .windows = {}};
}

class RuntimeRun {
 public:
  explicit RuntimeRun(const RunSetup& setup) : RuntimeRun(setup, small_geometry(setup.row_dtype)) {}
  RuntimeRun(const RunSetup& setup, const Geometry& geometry)
      : RuntimeRun(open(setup), setup, geometry) {}
  // Over a device made by the caller.
  RuntimeRun(std::unique_ptr<Device> device, const RunSetup& setup)
      : RuntimeRun(std::move(device), setup, small_geometry(setup.row_dtype)) {}
  RuntimeRun(std::unique_ptr<Device> device, const RunSetup& setup, const Geometry& geometry)
      : inner_(std::move(device)),
        device_(std::make_unique<FaultyDevice>(*inner_)),
        runtime_(*device_, config(setup), sharing(geometry, setup.copies ? 0 : setup.shared_layers),
                 setup.row_dtype, dims(setup, sharing(geometry, setup.shared_layers)), 0,
                 setup.max_steps),
        tape_(*device_, runtime_, DType::kF32) {
    if (setup.copies) tape_.copied = sharing(geometry, setup.shared_layers);
    if (setup.prediction_source == PredictionSource::kRandom) {
      random_ = std::make_unique<RandomPredictor>(*device_, 5);
      runtime_.set_predictor(random_.get());
    } else if (setup.prediction_source != PredictionSource::kNone) {
      const float error = setup.prediction_source == PredictionSource::kGoodQueries ? 0.3f : 8.0f;
      queries_ = std::make_unique<TapeQueries>(*device_, geometry, 4, error);
      runtime_.set_predictor(queries_.get());
      tape_.on_begin = [this](std::span<const Part> parts) { queries_->expect(parts); };
    }
  }

  // The slices' dimensions, in a different order for every head that is stored.
  static std::vector<int16_t> dims(const RunSetup& setup, const Geometry& geometry) {
    const int chunks = setup.tip_chunks > 0 ? setup.tip_chunks : geometry.chunks();
    std::vector<int16_t> dims;
    for (int head = 0; head < geometry.layers * geometry.kv_heads; ++head) {
      const int layer = head / geometry.kv_heads;
      const int stored = head - (layer - geometry.kv_layer(layer)) * geometry.kv_heads;
      for (int i = 0; i < chunks; ++i) {
        const Geometry::Pair pair = geometry.chunk_dims((i + stored) % geometry.chunks());
        dims.push_back(static_cast<int16_t>(pair.first));
        dims.push_back(static_cast<int16_t>(pair.second));
      }
    }
    return dims;
  }

  Runtime& runtime() { return runtime_; }
  FaultyDevice& device() { return *device_; }
  Device& inner() { return *inner_; }  // on which nothing fails
  Tape& tape() { return tape_; }

  // Prefills `tokens` tokens in chunks; returns the outputs by position, [token][layer][...].
  std::vector<std::vector<float>> prefill(SequenceId id, uint64_t seed, int64_t tokens, int chunk) {
    std::vector<std::vector<float>> outputs;
    while (tokens > 0) {
      const int now = static_cast<int>(std::min<int64_t>(tokens, chunk));
      const Part part{id, seed, runtime_.length(id), now, StepMode::kPrefill};
      append_split(tape_.step({&part, 1}), now, outputs);
      tokens -= now;
    }
    return outputs;
  }

  // The same in chunks that go layer by layer, in pieces. `between` runs between two pieces.
  std::vector<std::vector<float>> prefill_by_layers(SequenceId id, uint64_t seed, int64_t tokens,
                                                    int chunk, int piece,
                                                    const std::function<void()>& between = {}) {
    std::vector<std::vector<float>> outputs;
    while (tokens > 0) {
      const int now = static_cast<int>(std::min<int64_t>(tokens, chunk));
      const int64_t start = runtime_.length(id);
      runtime_.prompts().open_chunk(id, now);
      std::vector<float> all;
      for (int layer = 0; layer < runtime_.geometry().layers; ++layer) {
        for (int done = 0; done < now;) {
          const int count = std::min(piece, now - done);
          const std::vector<float> out =
              tape_.piece({id, seed, start + done, count, StepMode::kPrefill}, layer);
          all.insert(all.end(), out.begin(), out.end());
          done += count;
          if (between) between();
        }
      }
      runtime_.prompts().close_chunk(id);
      append_split(all, now, outputs);
      tokens -= now;
    }
    return outputs;
  }

  std::vector<std::vector<float>> decode(SequenceId id, uint64_t seed, int steps) {
    std::vector<std::vector<float>> outputs;
    for (int i = 0; i < steps; ++i) {
      const Part part{id, seed, runtime_.length(id), 1, StepMode::kDecode};
      outputs.push_back(tape_.step({&part, 1}));
    }
    return outputs;
  }

  // Splits the outputs of a step of `tokens` tokens into one vector per token.
  void append_split(const std::vector<float>& all, int tokens,
                    std::vector<std::vector<float>>& outputs) const {
    const Geometry& g = runtime_.geometry();
    for (int t = 0; t < tokens; ++t) {
      std::vector<float> one;
      auto first = all.begin();  // of the layer
      for (int layer = 0; layer < g.layers; ++layer) {
        const int64_t width = int64_t{g.query_heads} * g.heads(layer).value_dim;
        one.insert(one.end(), first + t * width, first + (t + 1) * width);
        first += tokens * width;
      }
      outputs.push_back(std::move(one));
    }
  }

 private:
  static Geometry sharing(Geometry geometry, int layers) {
    geometry.shared_layers = layers;
    return geometry;
  }
  static std::unique_ptr<Device> open(const RunSetup& setup) {
    DeviceOptions options;
    options.name = setup.device;
    options.threads = setup.threads;
    options.device_memory = setup.device_memory;
    options.host_memory = setup.host_memory;
    if (setup.link_bandwidth) options.link_bandwidth = *setup.link_bandwidth;
    return open_device(options);
  }
  static Config config(const RunSetup& setup) {
    Config config;
    config.selection.kind = setup.kind;
    config.selection.slice_dtype = setup.slice;
    if (setup.tip_chunks > 0) config.selection.tip_chunks = setup.tip_chunks;
    if (setup.fine_chunks > 0) config.selection.fine_chunks = setup.fine_chunks;
    config.selection.fac_tokens = {{.tokens = setup.fac_tokens, .share = 0}};
    config.selection.low_bit_tokens = low_bit_count(setup.low_bit_tokens);
    config.selection.value_codes = setup.value_codes;
    config.selection.sinks = 3;
    config.selection.recent = 5;
    config.selection.dense_layers = setup.dense_layers;
    config.placement.rows = setup.rows;
    config.placement.hot_rows = setup.hot_rows;
    config.prefetch.depth = setup.depth;
    config.prefetch.predictor = setup.predictor;
    config.prefetch.streams = setup.streams;
    config.prefetch.head_groups = setup.head_groups;
    config.device.graphs = setup.graphs;
    return config;
  }
  std::unique_ptr<Device> inner_;
  std::unique_ptr<FaultyDevice> device_;  // fails when told to
  std::unique_ptr<TapeQueries> queries_;
  std::unique_ptr<RandomPredictor> random_;
  Runtime runtime_;
  Tape tape_;
};

}  // namespace fasa::testing
