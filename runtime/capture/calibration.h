// Makes the FC map of a model: runs a text through it once and ranks the frequency chunks of every
// layer and KV head by the attention that a selection over them keeps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "runtime/calibrate/calibrate_ranking.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/capture/attention_capture.h"
#include "runtime/capture/calibration_data.h"
#include "runtime/llm/compute/model.h"

namespace fasa {

struct CalibrationOptions {
  Objective objective = Objective::kDistantAttention;
  // Tokens selected (K); none: default_calibration_window() of the text's tokens.
  std::optional<int> window;
  int tip_chunks = 0;  // FCs chosen greedily; the rest are ordered by their last gain. 0 = all
  int queries = 96;
  bool probes = true;
  int sinks = 4;
  int recent = 16;
  uint64_t seed = 1;
  int64_t tokens = 4096;  // most tokens of the text, probes included
  int prefill_chunk = 512;
  // Bytes of a slice per token and KV head: calibration finds its bits and FCs and writes them into
  // the map.
  std::optional<int> slice_bytes;

  // Throws UsageError naming the flag, what was given and what is allowed.
  void validate(const Geometry& geometry, int64_t max_positions) const;
};

enum class CalibrationPhase : uint8_t { kRunning, kRanking };
// done of total: tokens run through the model, then heads ranked.
using CalibrationProgress =
    std::function<void(CalibrationPhase phase, int64_t done, int64_t total)>;

// 256, or less for short texts, so that something remains to be selected from.
int default_calibration_window(int64_t tokens, int sinks, int recent);

// Runs in a Runtime of its own, freed afterwards: full attention, rows on the host, the model's
// device and its memory limits. Ranking uses the caller's oneTBB arena. Throws UsageError,
// BudgetError.
FcMap calibrate(Model& model, std::span<const int32_t> text, const CalibrationOptions& options,
                const CalibrationProgress& progress = {});

// A map for a model without one, made from the prompt's first 4096 tokens.
FcMap calibrate_from_prompt(Model& model, std::span<const int32_t> prompt, int sinks, int recent,
                            const CalibrationProgress& progress = {});

// The two parts of calibrate(), for studies with other data.
AttentionCapture capture_attention(Model& model, const CalibrationData& data, int prefill_chunk,
                                   const CalibrationProgress& progress = {});
AttentionCapture capture_attention(Model& model, const CalibrationData& data, LayerRange layers,
                                   int prefill_chunk, const CalibrationProgress& progress = {});
FcMap rank_capture(AttentionCapture capture, const Model& model, const CalibrationData& data,
                   const CalibrationOptions& options, const CalibrationProgress& progress = {});

}  // namespace fasa
