// Cost model: the seconds of one sequence's decode step on a machine, by cause. Pure functions of
// settings, length and hit rate. Prices follow the emulated device's clock: a kernel costs its call
// (KernelCosts) plus its device bytes (kernels/kernel_work.h) over the memory bandwidth; a transfer
// costs its latency plus its bytes over the link's bandwidth. Memory-bound kernels on a real GPU
// come close to these costs but are not faster.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/dtype.h"
#include "runtime/catalog/weight_load.h"
#include "scheduler/plan/step_plan.h"
#include "scheduler/step_settings.h"

namespace fasa {

struct MachineRates : DeviceRates {
  bool unified = false;  // one tier: nothing is ever transferred
};

// One decode step, its new token included.
struct StepLoad {
  int64_t tokens = 0;
  // Share of the selected entries, sinks and recent included, that are on the device
  // (FetchMetrics::hit_rate).
  double hit_rate = 0;
  DType out = DType::kBF16;  // of attention's output
};

// Prefetch one or more layers ahead; deep enough that a prediction has a layer's time to arrive.
struct PrefetchLoad {
  double coverage = 0;         // share of the missing entries that are fetched ahead
  double overfetch = 1;        // rows fetched ahead per row used, >= 1
  uint64_t predict_bytes = 0;  // device bytes that predicting a layer's set reads; 0: runners-up
};

// Seconds on the compute stream; the step is their sum. `transfer` and the fields after it are not
// part of it.
struct CostTerms {
  double append = 0;
  double scoring = 0;  // TIP
  double resolve = 0;
  double attention = 0;   // FAC, or full attention
  double prediction = 0;  // predicting the sets of later layers
  double weights = 0;
  double launches = 0;  // calls of kernels, besides their bytes
  double wait = 0;      // for rows
  double setup = 0;     // tables, embeddings and logits over the link
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
  // `context`: tokens that the sequence was reserved for; it determines the step's waves.
  CostModel(const StepSettings& settings, const MachineRates& machine, int64_t context);

  // Attention of one layer: append and attend.
  CostTerms layer(int layer, const StepLoad& load,
                  const std::optional<PrefetchLoad>& prefetch = {}) const;
  // The whole step, from begin_step until the host has its result.
  CostTerms step(const StepLoad& load, const std::optional<PrefetchLoad>& prefetch = {},
                 const WeightLoad& weights = {}) const;

  // Tokens that a layer attends to, per KV head.
  int64_t selected_size(int layer, int64_t tokens) const;
  // The hit rate of a step if the share `overlap` of the selected entries, without sinks and recent
  // tokens, is in the hot rows. 1 if rows are local.
  double hit_rate(double overlap, int64_t tokens) const;

 private:
  struct Fetch;
  double link(double bytes) const { return bytes / machine_.link_bandwidth; }
  int32_t visible(int layer, int64_t tokens) const {
    return settings_.visible_tokens(layer, tokens);
  }
  void add_append(int layer, CostTerms& terms) const;
  void add_all_in_place(const LayerPlan& plan, int layer, const StepLoad& load,
                        CostTerms& terms) const;
  void add_all_streamed(int layer, const StepLoad& load, CostTerms& terms) const;
  void add_selected(const LayerPlan& plan, int layer, const StepLoad& load,
                    const std::optional<PrefetchLoad>& prefetch, CostTerms& terms) const;
  void add_groups(const HeadGroups& groups, int layer, const StepLoad& load,
                  const std::optional<PrefetchLoad>& prefetch, CostTerms& terms) const;
  void add_fetched(const Fetch& fetch, double rounds, CostTerms& terms) const;
  int runners_up(const std::optional<PrefetchLoad>& prefetch, int64_t set) const;
  double predict_calls(const PrefetchLoad& prefetch, int64_t set) const;
  Fetch fetch_of(int64_t set, double hit_rate, const std::optional<PrefetchLoad>& prefetch) const;

  StepSettings settings_;
  MachineRates machine_;
  RowAccess access_;  // how kernels reach the rows
  DecodeCapacities capacities_;
};

}  // namespace fasa
