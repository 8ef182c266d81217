// Before anything is loaded: what a model's cache takes on a machine under each preset and slice,
// the longest context that fits, what a token costs, and which settings to take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/catalog/model_shape.h"
#include "runtime/config/config.h"
#include "runtime/plan/cost_model.h"
#include "runtime/plan/plan_machine.h"

namespace fasa {

// What a plan can't know and has to suppose; measured values are better (`fasa generate --stats`).
struct PlanPrediction {
  double overlap = 0.5;  // of a set beside sinks and recent, found among the hot rows
  // Of prefetch: see PrefetchLoad. What was measured with 8 of 32 FCs, as many as a prediction
  // scores (docs/results/prefetch.md: depth 1, x1.25, rows that two sets of hot rows miss).
  double coverage = 0.17;

  // Rows fetched ahead for each row that is not on the device, right or wrong: 2.0, 1.87, 1.74 and
  // 1.39 were measured where coverage was 0.17, 0.32, 0.44 and 1.
  double prefetched_per_miss() const { return 2.1 - 0.7 * coverage; }
};

// What a model takes on the device where that is known by the byte.
struct PlannedWeights {
  uint64_t total = 0;
  uint64_t layers = 0;  // matrices of all layers, read by each token
  uint64_t head = 0;
  uint64_t activations = 0;  // of prefill chunks
  uint64_t host = 0;         // experts that lie in host memory
  uint64_t experts = 0;      // all that a router chooses from, wherever they lie
  uint64_t chosen = 0;       // of them, what a token reads: among `layers`, unless they lie there

  uint64_t fetched() const { return host > 0 ? chosen : 0; }
};

// Experts in one place: what the weights take there, and what reading a token's experts takes.
struct ExpertOption {
  bool on_host = false;
  uint64_t device_bytes = 0;  // of all weights
  uint64_t host_bytes = 0;
  double seconds = 0;
};

struct PlanOptions {
  ModelShape model;
  Config config;
  PlanMachine machine;
  int64_t tokens = 0;
  int weight_bits = 16;                        // 16, 8, 4
  std::optional<PlannedWeights> weights = {};  // over `weight_bits`
  RowDType row_dtype = DType::kBF16;
  int prefill_chunk = 512;
  PlanPrediction prediction;
};

// Attention alone, and with weights, embedding and logits.
struct PlannedStep {
  CostTerms attention;
  CostTerms whole;
};

struct PlanOption {
  Config config;  // the request's under this preset and slice
  int chunks = 0;
  SliceDType slice_dtype = SliceDType::kInt2;
  std::optional<SliceDType> value_dtype =
      {};                  // of the low-bit set's; none: there is no low-bit set
  bool configured = true;  // the slice is the one that the request's config asks for
  int hot_rows = 0;        // per layer and KV head, promised
  // hot_rows = auto: how many a decoding sequence takes in place of these out of what is free,
  // given back when asked; 0 = stays with those promised. And the bytes that this adds.
  int extra_hot_rows = 0;
  uint64_t extra_bytes = 0;
  double hit_rate = 1;        // supposed
  KvMemory kv;                // at the request's tokens
  uint64_t device_bytes = 0;  // with weights and activations
  uint64_t host_bytes = 0;
  bool fits = false;
  // With as few hot rows as the config allows. 0: none; no value: no limit is known.
  std::optional<int64_t> longest_context;
  PlannedStep step;
  std::optional<PlannedStep> prefetched;  // only where rows are fetched
};

struct Plan {
  uint64_t weight_bytes = 0;  // on the device
  uint64_t host_weight_bytes = 0;
  std::vector<ExpertOption> experts;  // of a model that has some, where there are two tiers
  uint64_t activation_bytes = 0;      // of prefill chunks, and what projections work in
  // The configured slices of each preset first, then others: full once, for it has no slices.
  std::vector<PlanOption> options;
  std::optional<size_t> recommended;  // index of options; none where nothing fits
  double prefill_seconds = 0;         // of all tokens, bound by tensor throughput; 0: unknown

  const PlanOption& option(const std::string& preset) const;  // with the configured slice
};

// Throws UsageError for a config that doesn't fit the model, and for tokens below 1.
Plan make_plan(const PlanOptions& request);

// The recommended config as TOML that --config takes, with a comment line; "" where nothing fits.
std::string recommended_toml(const PlanOptions& request, const Plan& plan);

}  // namespace fasa
