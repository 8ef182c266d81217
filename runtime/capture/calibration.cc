#include "runtime/capture/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/parallel.h"
#include "runtime/base/require.h"
#include "runtime/calibrate/calibrate_slices.h"
#include "runtime/llm/generation/owned_sequence.h"

namespace fasa {
namespace {

constexpr int64_t kPromptTokens = 4096;

}  // namespace

void CalibrationOptions::validate(const Geometry& geometry, int64_t max_positions) const {
  require(sinks >= 0, "sinks", sinks, "0 or more");
  require(recent >= 1, "recent", recent, "1 or more");
  if (window) {
    require(
        *window > sinks + recent, "window", *window,
        fmt::format("more than sinks + recent ({}), which are always selected", sinks + recent));
  }
  require(tip_chunks >= 0 && tip_chunks <= geometry.chunks(), "tip_chunks", tip_chunks,
          fmt::format("1 to {}, the number of FCs per head, or 0 for all", geometry.chunks()));
  require(queries >= 1 && queries <= 1 << 20, "queries", queries, "1 to 1048576");
  require(tokens >= 1 && tokens <= max_positions, "tokens", tokens,
          fmt::format("1 to {}, the number of positions of the model", max_positions));
  if (slice_bytes) SliceSearch(*slice_bytes, geometry.chunks());  // throws if too small
  require(prefill_chunk >= 1, "prefill_chunk", prefill_chunk, "1 or more");
}

int default_calibration_window(int64_t tokens, int sinks, int recent) {
  constexpr int64_t kWindow = 256;
  constexpr int64_t kMin = 32;  // without the sinks and recent tokens
  return static_cast<int>(std::clamp<int64_t>(tokens / 16, sinks + recent + kMin,
                                              std::max(kWindow, sinks + recent + kMin)));
}

AttentionCapture capture_attention(Model& model, const CalibrationData& data, int prefill_chunk,
                                   const CalibrationProgress& progress) {
  return capture_attention(model, data, {0, model.config().attention_layers()}, prefill_chunk,
                           progress);
}

AttentionCapture capture_attention(Model& model, const CalibrationData& data, LayerRange layers,
                                   int prefill_chunk, const CalibrationProgress& progress) {
  const Geometry geometry = model.config().geometry();
  const auto total = static_cast<int64_t>(data.ids.size());
  const int64_t chunk = std::min<int64_t>(prefill_chunk, total);
  Config config;
  config.preset = "full";
  config.selection.kind = SelectionKind::kFull;
  config.placement.rows = RowPlacement::kHost;
  Runtime runtime(model.device(), config, geometry, model.dtype(), all_slice_dims(geometry));
  const OwnedSequence sequence(runtime);
  runtime.reserve(sequence.id(), total, static_cast<int>(chunk));
  model.reserve(static_cast<int>(chunk));
  AttentionCapture capture(geometry, total, data.positions, layers);
  const std::span<const int32_t> ids(data.ids);
  for (int64_t done = 0; done < total;) {
    const int64_t count = std::min(chunk, total - done);
    const std::array step{StepSequence{sequence.id(), static_cast<int>(count), StepMode::kPrefill}};
    model.step(runtime, ids.subspan(static_cast<size_t>(done), static_cast<size_t>(count)), step,
               {.no_logits = true, .observer = &capture});
    done += count;
    if (progress) progress(CalibrationPhase::kRunning, done, total);
  }
  return capture;
}

FcMap rank_capture(AttentionCapture capture, const Model& model, const CalibrationData& data,
                   const CalibrationOptions& options, const CalibrationProgress& progress) {
  const Geometry geometry = model.config().geometry();
  FcMap map;
  map.objective = objective_name(options.objective);
  map.data_hash = data.hash();
  map.sinks = options.sinks;
  map.recent = options.recent;
  map.tokens = static_cast<int>(data.ids.size());
  map.window = options.window.value_or(
      default_calibration_window(map.tokens, options.sinks, options.recent));
  map.queries = static_cast<int>(data.positions.size());
  map.probes = data.probes;
  map.fingerprint = model.fingerprint();
  const RankingOptions ranking{.objective = options.objective,
                               .window = map.window,
                               .sinks = options.sinks,
                               .recent = options.recent,
                               .greedy_chunks = options.tip_chunks};
  const SelectionRule rule{map.window, options.sinks, options.recent};
  std::optional<SliceSearch> slices;
  if (options.slice_bytes) slices.emplace(*options.slice_bytes, geometry.chunks());
  const int64_t total = int64_t{geometry.layers} * geometry.kv_heads;
  int64_t done = 0;
  for (int layer = 0; layer < geometry.layers; ++layer) {
    auto& heads = map.heads.emplace_back(static_cast<size_t>(geometry.kv_heads));
    std::vector<HeadSamples> samples;
    for (int head = 0; head < geometry.kv_heads; ++head) {
      samples.push_back(capture.take(layer, head));
    }
    parallel_for(size_t{0}, samples.size(),
                 [&](size_t head) { heads[head] = rank_chunks(samples[head], ranking); });
    for (size_t head = 0; head < samples.size(); ++head) {
      if (slices) slices->add(samples[head], heads[head], rule);
    }
    done += geometry.kv_heads;
    if (progress) progress(CalibrationPhase::kRanking, done, total);
  }
  if (slices) map.slice = slices->best();
  return map;
}

FcMap calibrate(Model& model, std::span<const int32_t> text, const CalibrationOptions& options,
                const CalibrationProgress& progress) {
  options.validate(model.config().geometry(), model.config().max_positions);
  const CalibrationData data = make_calibration_data(text, {.tokens = options.tokens,
                                                            .queries = options.queries,
                                                            .probes = options.probes,
                                                            .seed = options.seed});
  return rank_capture(capture_attention(model, data, options.prefill_chunk, progress), model, data,
                      options, progress);
}

FcMap calibrate_from_prompt(Model& model, std::span<const int32_t> prompt, int sinks, int recent,
                            const CalibrationProgress& progress) {
  CalibrationOptions options;
  options.sinks = sinks;
  options.recent = recent;
  options.tokens = std::min(kPromptTokens, model.config().max_positions);
  return calibrate(model, prompt, options, progress);
}

}  // namespace fasa
