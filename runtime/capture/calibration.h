// Makes the FC map of a model: runs a text through it once and ranks the frequency chunks of every
// layer and KV head by what a selection over them would keep.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "runtime/calibrate/calibrate_ranking.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/capture/attention_capture.h"
#include "runtime/capture/calibration_data.h"
#include "runtime/llm/model.h"

namespace fasa {

struct CalibrationOptions {
  Objective objective = Objective::kDistantAttention;
  // K, tokens selected; none: default_calibration_window of the tokens run.
  std::optional<int> window;
  int tip_chunks = 0;  // FCs picked one by one, the rest follows their last gain; 0 = all
  int queries = 96;
  bool probes = true;
  int sinks = 4;
  int recent = 16;
  uint64_t seed = 1;
  int64_t tokens = 4096;  // of the text at most, probes included
  int prefill_chunk = 512;
  // Bytes of a slice per token and KV head: its bits and FCs are found and written into the map.
  std::optional<int> slice_bytes;
  // Share of a layer's attention to keep: counts of tokens per layer are found and written
  // into the map, `fac_tokens` or more.
  std::optional<double> keep_attention;
  int fac_tokens = 256;

  // Throws UsageError naming the flag, what was given and what is allowed.
  void validate(const Geometry& geometry, int64_t max_positions) const;
};

enum class CalibrationPhase : uint8_t { kRunning, kRanking };
// done of total: tokens run through the model, then heads ranked.
using CalibrationProgress =
    std::function<void(CalibrationPhase phase, int64_t done, int64_t total)>;

// 256, or less on short texts, where so many would leave nothing to select.
int default_calibration_window(int64_t tokens, int sinks, int recent);

// A pass of its own: a Runtime with full attention and rows on the host, on the model's device and
// within its budgets, freed after. Ranking takes the caller's oneTBB arena. Throws UsageError,
// BudgetError.
FcMap calibrate(Model& model, std::span<const int32_t> text, const CalibrationOptions& options,
                const CalibrationProgress& progress = {});

// The map that a prompt without one is answered with: from its first 4096 tokens.
FcMap calibrate_from_prompt(Model& model, std::span<const int32_t> prompt, int sinks, int recent,
                            const CalibrationProgress& progress = {});

// The two parts of calibrate(), for studies of other data.
AttentionCapture capture_attention(Model& model, const CalibrationData& data, int prefill_chunk,
                                   const CalibrationProgress& progress = {});
AttentionCapture capture_attention(Model& model, const CalibrationData& data, LayerRange layers,
                                   int prefill_chunk, const CalibrationProgress& progress = {});
FcMap rank_capture(AttentionCapture capture, const Model& model, const CalibrationData& data,
                   const CalibrationOptions& options, const CalibrationProgress& progress = {});

}  // namespace fasa
