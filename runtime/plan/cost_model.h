// What a decode step of one sequence costs on a machine, in seconds by what they are spent on: pure
// functions of settings, length and hit rate. Priced as the emulated device's clock does it: a
// kernel lasts its launch and its device bytes (kernels/kernel_work.h) over the memory bandwidth, a
// transfer its bytes over the link's and a latency; a real GPU's kernels come near that where they
// are bound by memory, and never below.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/dtype.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Bytes per second, seconds.
struct MachineRates {
  double memory_bandwidth = 300e9;
  double launch_seconds = 4e-6;
  double link_bandwidth = 25e9;  // per direction
  double link_latency = 10e-6;
  bool unified = false;  // one tier: nothing is ever transferred
};

// One decode step, its new token included.
struct StepLoad {
  int64_t tokens = 0;
  // Of the set's entries, sinks and recent included: found on the device (FetchMetrics::hit_rate).
  double hit_rate = 0;
  DType out = DType::kBF16;  // of attention's output
};

// Speculation one layer ahead or more, deep enough that a prediction has a layer's time to arrive.
struct PrefetchLoad {
  double coverage = 0;         // of the entries that are not on the device, those fetched ahead
  double overfetch = 1;        // rows fetched ahead for each that a step then uses, >= 1
  uint64_t predict_bytes = 0;  // device bytes that predicting one layer's set reads
  int predict_launches = 0;
};

// The cost of predictions by query: scoring over the first eighth of a slice of `tokens` tokens,
// with a query whose projection reads `projection_bytes`. Coverage and overfetch are the caller's
// to set.
PrefetchLoad prediction_by_query(const CacheLayout& layout, int64_t tokens,
                                 uint64_t projection_bytes);

// Weights, 0 for attention alone.
struct WeightLoad {
  uint64_t layer_bytes = 0;    // read per layer and token
  uint64_t fetched_bytes = 0;  // the same, over the link: of experts in host memory
  uint64_t head_bytes = 0;     // of the output projection
  uint64_t hidden_bytes = 0;   // of the embedding that is sent to the device
  uint64_t logit_bytes = 0;    // sent back
  bool any() const { return layer_bytes > 0; }
};

// Seconds on the compute stream; their sum is the step. `transfer` and what follows lie beside it.
struct CostTerms {
  double append = 0;
  double scoring = 0;  // TIP
  double resolve = 0;
  double attention = 0;   // FAC, or full attention
  double prediction = 0;  // of later layers' sets
  double weights = 0;
  double launches = 0;
  double wait = 0;   // for rows
  double setup = 0;  // tables, embeddings and logits over the link
  double total() const {
    return append + scoring + resolve + attention + prediction + weights + launches + wait + setup;
  }

  double transfer = 0;        // of the rows that the step used
  uint64_t used_bytes = 0;    // these rows
  uint64_t wasted_bytes = 0;  // fetched ahead and not used
  // Share of `transfer` that compute did not wait for; 1 where nothing was transferred.
  double hidden() const;
  CostTerms& operator+=(const CostTerms& other);
};

class CostModel {
 public:
  // `context`: tokens that the sequence was reserved for, which the step's waves depend on.
  CostModel(const StepSettings& settings, const MachineRates& machine, int64_t context);

  // Attention of one layer: append and attend.
  CostTerms layer(int layer, const StepLoad& load,
                  const std::optional<PrefetchLoad>& prefetch = {}) const;
  // The whole step, from begin_step until the host has its result.
  CostTerms step(const StepLoad& load, const std::optional<PrefetchLoad>& prefetch = {},
                 const WeightLoad& weights = {}) const;

  // Entries of a layer's set: what it attends to, per KV head.
  int64_t selected_size(int layer, int64_t tokens) const;
  // The hit rate of a step of which the share `overlap` of the set's entries beside sinks and
  // recent is among the hot rows. 1 where rows are on the device.
  double hit_rate(double overlap, int64_t tokens) const;

 private:
  struct Fetch;
  double device(uint64_t bytes) const {
    return static_cast<double>(bytes) / machine_.memory_bandwidth;
  }
  double link(double bytes) const { return bytes / machine_.link_bandwidth; }
  int64_t visible(int layer, int64_t tokens) const;
  void add_append(int layer, CostTerms& terms) const;
  void add_dense_on_device(int layer, const StepLoad& load, CostTerms& terms) const;
  void add_dense_from_host(int layer, const StepLoad& load, CostTerms& terms) const;
  void add_selected(int layer, const StepLoad& load, const std::optional<PrefetchLoad>& prefetch,
                    CostTerms& terms) const;
  void add_groups(int layer, const StepLoad& load, const std::optional<PrefetchLoad>& prefetch,
                  CostTerms& terms) const;
  void add_fetched(const Fetch& fetch, double rounds, CostTerms& terms) const;
  Fetch fetch_of(int64_t set, double hit_rate, const std::optional<PrefetchLoad>& prefetch) const;

  StepSettings settings_;
  MachineRates machine_;
  int wave_ = 0;            // set entries at a time
  int waves_ = 0;           // of a set
  int dense_wave_ = 0;      // tokens at a time where all are attended to
  bool in_groups_ = false;  // a set is one wave, fetched in groups of heads
};

}  // namespace fasa
