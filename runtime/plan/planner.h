// Plans a model before it is loaded: for each preset and slice format, the cache's memory on a
// machine, the longest context that fits and the cost of a token. Recommends settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/prefill_chunk.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/catalog/model_shape.h"
#include "runtime/config/config.h"
#include "runtime/plan/cost_model.h"
#include "runtime/plan/loss_law.h"
#include "runtime/plan/plan_machine.h"
#include "runtime/plan/prompt_plan.h"

namespace fasa {

// Assumptions of a plan; measured values are better (`fasa generate --stats`). None: what the hot
// rows of a decoding sequence find on the shipped trace (scheduler/plan/head_groups.h).
struct PlanPrediction {
  // Share of a set, without sinks and recent tokens, found in the hot rows.
  std::optional<double> overlap;
  std::optional<double> coverage;  // see PrefetchLoad; of runners-up
  // Rows fetched ahead per missing row, used or not: 1.6 to 2.2 with sixteen sets of hot rows, up
  // to 5 with eight (docs/results/prefetch.md).
  static constexpr double kPrefetchedPerMiss = 2;
};

// A model's memory, where it is known exactly.
struct PlannedWeights {
  uint64_t total = 0;
  uint64_t layers = 0;  // matrices of all layers that each token reads
  uint64_t head = 0;
  uint64_t activations = 0;  // for prefill chunks
  uint64_t activations_per_token = 0;
  uint64_t host = 0;     // experts in host memory
  uint64_t experts = 0;  // all experts of all routers, in either memory
  uint64_t chosen =
      0;  // the experts that one token reads; part of `layers` unless they are in host memory

  uint64_t fetched() const { return host > 0 ? chosen : 0; }
};

// Experts in one memory: the size of the weights there, and the cost of reading one token's
// experts.
struct ExpertOption {
  bool on_host = false;
  uint64_t device_bytes = 0;  // all weights
  uint64_t host_bytes = 0;
  double seconds = 0;
};

struct PlanOptions {
  ModelShape model;
  std::string model_path = {};  // "" = a geometry by name
  Config config;
  PlanMachine machine;
  GivenMachine given_machine = {};  // what of it the caller gave
  int64_t tokens = 0;
  int weight_bits = 4;                         // 16, 8, 4
  std::optional<PlannedWeights> weights = {};  // overrides `weight_bits`
  RowDType row_dtype = DType::kBF16;
  // None: as many as memory allows (runtime/api/prefill_chunk.h); what has to fit counts the least.
  std::optional<int> prefill_chunk = {};
  PlanPrediction prediction;
};

// A step's cost for attention alone, and with weights, embedding and logits.
struct PlannedStep {
  CostTerms attention;
  CostTerms whole;
};

struct PlanOption {
  Config config;      // the request's, with this preset and slice format
  std::string name;   // "default", "fine", "full", ...: what the settings below are called
  std::string set;    // what to type for it, as lines of a config file: slice = "fine"
  bool usual = true;  // one of those to choose among; the others are for comparison
  AttendedTokens attended;
  std::optional<PredictedLoss> loss;  // of what it attends to; none: not measured
  int chunks = 0;
  int fine_chunks = 0;  // of these, in int4
  SliceDType slice_dtype = SliceDType::kInt2;
  std::optional<SliceDType> value_dtype =
      {};                    // of the low-bit set's; none: there is no low-bit set
  bool all_low_bit = false;  // the low-bit set is all other tokens
  bool configured = true;    // the slice format and the low-bit set are the config's
  int hot_rows = 0;          // guaranteed, per layer and KV head
  // hot_rows = auto: the number that a decoding sequence takes instead while memory is free, and
  // returns on demand; 0 = none. And the bytes that they add.
  int extra_hot_rows = 0;
  uint64_t extra_bytes = 0;
  double hit_rate = 1;        // assumed
  double coverage = 0;        // assumed, of prefetch
  KvMemory kv;                // at the request's tokens
  uint64_t device_bytes = 0;  // weights and activations included
  uint64_t host_bytes = 0;
  uint64_t int8_host_bytes = 0;  // with rows in int8
  bool fits = false;
  // With the fewest hot rows that the config allows. 0: none fits; no value: no known limit.
  std::optional<int64_t> longest_context;
  PromptPlan prompt;  // of all tokens
  PlannedStep step;
  std::optional<PlannedStep> prefetched;  // only where rows are fetched

  double seconds() const;  // of a token, with weights; rows are fetched ahead where that is faster
};

struct Plan {
  uint64_t weight_bytes = 0;  // on the device
  uint64_t host_weight_bytes = 0;
  std::vector<ExpertOption> experts;  // for models with experts on machines with two tiers
  uint64_t activation_bytes = 0;      // prefill chunks and the projections' scratch
  // Each preset's configured slice format first, then others. `full` appears once: it has no
  // slices, and loses nothing.
  std::vector<PlanOption> options;
  std::optional<size_t> recommended;  // index of options; none if nothing fits

  // Whose numbers stand for a prompt's: the recommended, else the first.
  const PlanOption& shown() const { return options[recommended.value_or(0)]; }
  const PlanOption& option(const std::string& preset) const;  // with the configured slice format
};

// Throws UsageError for a config that does not fit the model, and for less than one token.
Plan make_plan(const PlanOptions& request);

// What would fit where nothing does, in a sentence with numbers.
std::string what_would_fit(const PlanOptions& request, const Plan& plan);

// The recommended config as TOML for --config, with a comment line; "" if nothing fits.
std::string recommended_toml(const PlanOptions& request, const Plan& plan);

}  // namespace fasa
