// A decode without a model: replays a trace's selections on any geometry and length, through the
// real runtime on the emulated device, in virtual time. The caller runs the steps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/catalog/weight_load.h"
#include "runtime/synthetic/synthetic_device.h"
#include "runtime/trace/selection_trace.h"

namespace fasa {

struct SyntheticOptions {
  Geometry geometry;
  int64_t tokens = 131072;  // tokens of each sequence before the first step
  int sequences = 1;
  int step_tokens = 1;      // of each sequence, as with drafts; fewer where a page ends
  int64_t max_steps = 512;  // memory is reserved for so many
  RowDType row_dtype = DType::kBF16;
  // device.name is ignored: the device is the emulated one, with the bandwidth and launch cost
  // below.
  Config config;
  double memory_bandwidth = 288e9;  // bytes per second
  KernelCosts kernels;
  // Each layer's weights are read in one launch between two attentions. None: attention alone.
  WeightLoad weights;
  SyntheticCompute compute = SyntheticCompute::kModelled;
  uint64_t seed = 0;

  // Throws UsageError.
  void validate() const;
  int64_t max_new_tokens() const { return max_steps * step_tokens; }  // of a sequence
  DeviceOptions device_options() const;
  std::vector<int16_t> slice_dims() const;  // as a Runtime takes them
};

struct SyntheticStep {
  // On the device's clock, from begin_step to the last layer's output or the logits.
  double seconds = 0;
  int64_t tokens = 0;  // of all sequences
  FetchMetrics fetch;  // of this step alone
  TransferTotals transfers;
};

struct SyntheticResult {
  std::vector<SyntheticStep> steps;
  double tpot_seconds = 0;  // mean of the steps
  KvMemory memory;
  double wall_seconds = 0;
};

class SyntheticDecode {
 public:
  // Fills the sequences. Throws UsageError, BudgetError.
  SyntheticDecode(const SyntheticOptions& settings, SelectionTrace trace);
  ~SyntheticDecode();
  SyntheticDecode(const SyntheticDecode&) = delete;  // its parts refer to each other
  SyntheticDecode& operator=(const SyntheticDecode&) = delete;

  // One decode step of all sequences. Throws UsageError beyond max_steps, BudgetError, DeviceError.
  SyntheticStep step();
  // Runs `warmup` unmeasured steps (the hot rows begin empty), then `steps`.
  SyntheticResult run(int warmup, int steps);

  Runtime& runtime();
  Device& device();
  // Overlap of each set with the previous step's, by layer, since the last call.
  std::vector<OverlapCount> take_overlap();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fasa
