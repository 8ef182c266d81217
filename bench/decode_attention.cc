// One decode step's attention on this CPU, per layer: TIP and FAC against the project's own full
// attention (fused over the GQA group), timed in the same steps. Layers of all kinds alternate, so
// that slices and rows come from memory as they do in a model, not from the last-level cache.
//
//   decode_attention/tokens:131072/k:256/slice:int2/fcs:64
//   decode_attention/tokens:131072/k:256/slice:int2/fcs:64/rows:int8
//   decode_attention/tokens:131072/k:256/slice:int2/fcs:64/low_bit:1024
//
// Time: one layer, 8 KV x 4 query heads, head_dim 128, bf16 rows and no low-bit tokens unless the
// name says otherwise, batch 1. Counters are medians over the steps of ratios taken within a step:
// ratio_to_full (full / this), full_stream_share (of the read bandwidth measured in the same step),
// stream_share (bytes of slices and rows that this layer must read), and the two floors:
// bytes_bound_ms (those bytes at that bandwidth), compute_bound_ms (scoring the same pages from the
// cache), bound_share (the larger floor / this).
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <tbb/info.h>
#include <unistd.h>

#include <memory>

#include "bench/in_cache_scoring.h"
#include "bench/stream.h"
#include "tests/support/filled_runtime.h"

namespace fasa::bench {
namespace {

struct Format {
  SliceDType dtype;
  int chunks;
  RowDType rows = RowDType::kBF16;
  int low_bit_tokens = 0;

  bool operator==(const Format&) const = default;
  int64_t row_bytes() const { return RowFormat{rows, 128, 128}.bytes(); }
};
constexpr Format kFormats[] = {{SliceDType::kBF16, 16},
                               {SliceDType::kInt8, 16},
                               {SliceDType::kInt2, 32},
                               {SliceDType::kInt2, 64},
                               {SliceDType::kInt2, 64, RowDType::kInt8},
                               {SliceDType::kInt2, 64, RowDType::kBF16, 512},
                               {SliceDType::kInt2, 64, RowDType::kBF16, 1024}};
constexpr int kBudgets[] = {128, 256, 2048};
constexpr int kHeads = 8;
// Limit of the rows of all layers together; the rest of a 24 GiB machine is for slices and the
// system.
constexpr int64_t kMaxRowBytes = int64_t{14} << 30;

int64_t last_level_cache() {
  const int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : int64_t{32} << 20;
}

// Layer i uses budget kBudgets[i % kKinds]; the last kind is full attention.
constexpr int kFull = static_cast<int>(std::size(kBudgets));
constexpr int kKinds = kFull + 1;

class Case {
 public:
  Case(int64_t tokens, Format format)
      : layers_(layer_count(tokens, format.row_bytes())),
        filled_(cpu(), config(format, layers_), llama_8b(layers_),
                first_chunk_dims(llama_8b(layers_), format.chunks), tokens),
        stream_(filled_.device()),
        q_(random_bf16(4096, 11)),
        kv_(random_bf16(1024, 12)),
        out_(4096) {}

  double stream_bandwidth() { return stream_.read(); }

  // Seconds of one layer, by kind: the mean over the layers of one step.
  std::array<double, kKinds> step() {
    std::array<double, kKinds> seconds{};
    Runtime& runtime = filled_.runtime();
    const StepSequence part{filled_.sequence(), 1, StepMode::kDecode};
    runtime.begin_step({&part, 1});
    const StreamView stream = filled_.stream();
    for (int layer = 0; layer < layers_; ++layer) {
      const auto kv = ConstTensorView::dense(kv_.data(), DType::kBF16, 1, kHeads, 128);
      runtime.append(layer, kv, kv, stream);
      const auto begin = std::chrono::steady_clock::now();
      runtime.attend(layer, ConstTensorView::dense(q_.data(), DType::kBF16, 1, 32, 128),
                     TensorView::dense(out_.data(), DType::kF32, 1, 32, 128), nullptr, stream);
      seconds[static_cast<size_t>(layer % kKinds)] += seconds_since(begin);
    }
    runtime.end_step();
    for (double& s : seconds) s /= layers_ / kKinds;
    return seconds;
  }

 private:
  // Reading the dense layers between two visits of a layer flushes the cache.
  static int layer_count(int64_t tokens, int64_t row_bytes) {
    const int64_t layer_bytes = tokens * kHeads * row_bytes;
    int64_t groups = (last_level_cache() * 5 / 4 + layer_bytes - 1) / layer_bytes;
    groups = std::clamp<int64_t>(kMaxRowBytes / layer_bytes / kKinds, 1, groups);
    return static_cast<int>(groups * kKinds);
  }
  static DeviceOptions cpu() {
    DeviceOptions options;
    options.name = "cpu";
    return options;
  }
  static Config config(Format format, int layers) {
    Config config;
    config.selection.slice_dtype = format.dtype;
    config.selection.tip_chunks = format.chunks;
    config.selection.low_bit_tokens = {.tokens = format.low_bit_tokens, .share = 0};
    config.placement.row_dtype = format.rows;
    config.selection.fac_tokens.clear();
    for (int layer = 0; layer < layers; ++layer) {
      if (layer % kKinds == kFull) config.selection.dense_layers.push_back(layer);
      config.selection.fac_tokens.push_back(
          {.tokens = kBudgets[layer % kKinds % kFull], .share = 0});
    }
    return config;
  }

  int layers_;
  FilledRuntime filled_;
  Stream stream_;
  std::vector<uint16_t> q_;
  std::vector<uint16_t> kv_;
  std::vector<float> out_;
};

// Filling is slow: consecutive benchmarks of one length and format share a case.
Case& case_of(int64_t tokens, Format format) {
  static std::unique_ptr<Case> current;
  static std::pair<int64_t, Format> key;
  const std::pair wanted(tokens, format);
  if (!current || key != wanted) {
    current.reset();
    current = std::make_unique<Case>(tokens, format);
    key = wanted;
    for (int i = 0; i < 2; ++i) current->step();
  }
  return *current;
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void run(benchmark::State& state, int64_t tokens, size_t kind, Format format) {
  Case& subject = case_of(tokens, format);
  const SliceFormat slice{format.dtype, 2 * format.chunks};
  const int64_t set = std::min<int64_t>(kBudgets[kind], tokens);
  const auto pages = static_cast<double>(kHeads * (tokens / kPageTokens));
  const double full_bytes = static_cast<double>(tokens * kHeads * format.row_bytes());
  const double bytes = pages * static_cast<double>(slice.page_bytes()) +
                       static_cast<double>(kHeads * set * format.row_bytes());
  const double compute_bound = pages * in_cache_page_seconds(slice);
  std::vector<double> mine, full, ratio, full_share, share, bandwidths, bound_share;
  for (auto _ : state) {
    const auto seconds = subject.step();
    const double bandwidth = subject.stream_bandwidth();
    state.SetIterationTime(seconds[kind]);
    mine.push_back(seconds[kind]);
    full.push_back(seconds[kFull]);
    ratio.push_back(seconds[kFull] / seconds[kind]);
    bandwidths.push_back(bandwidth);
    full_share.push_back(full_bytes / seconds[kFull] / bandwidth);
    share.push_back(bytes / seconds[kind] / bandwidth);
    bound_share.push_back(std::max(bytes / bandwidth, compute_bound) / seconds[kind]);
  }
  state.counters["median_ms"] = median(mine) * 1e3;
  state.counters["full_ms"] = median(full) * 1e3;
  state.counters["ratio_to_full"] = median(ratio);
  state.counters["full_stream_share"] = median(full_share);
  state.counters["stream_share"] = median(share);
  state.counters["stream_GB_per_s"] = median(bandwidths) / 1e9;
  state.counters["bytes_bound_ms"] = bytes / median(bandwidths) * 1e3;
  state.counters["compute_bound_ms"] = compute_bound * 1e3;
  state.counters["bound_share"] = median(bound_share);
}

void register_all() {
  for (int64_t tokens = 4096; tokens <= int64_t{1} << 20; tokens *= 2) {
    for (const Format& format : kFormats) {
      for (size_t kind = 0; kind < std::size(kBudgets); ++kind) {
        std::string name =
            fmt::format("decode_attention/tokens:{}/k:{}/slice:{}/fcs:{}", tokens, kBudgets[kind],
                        slice_dtype_name(format.dtype), format.chunks);
        if (format.rows.is_coded()) name += fmt::format("/rows:{}", row_dtype_name(format.rows));
        if (format.low_bit_tokens > 0) name += fmt::format("/low_bit:{}", format.low_bit_tokens);
        benchmark::RegisterBenchmark(name.c_str(), run, tokens, kind, format)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond)
            ->Iterations(tokens >= (1 << 19) ? 7 : 15);
      }
    }
  }
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  fasa::bench::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
