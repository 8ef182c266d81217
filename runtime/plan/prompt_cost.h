// The seconds until a prompt's first token, with what they are made of: operations of the matrix
// products, softmax states, and the rows that cross the link. Pure functions of settings, lengths
// and rates, by the rules of the cost model; the order of copies and kernels is that of a prefill
// (scheduler/step/step_executor_dense.cc).
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/catalog/weight_load.h"
#include "runtime/plan/cost_model.h"
#include "scheduler/step/step_scratch.h"
#include "scheduler/step_settings.h"

namespace fasa {

struct PromptLoad {
  int64_t tokens = 0;
  int chunk = 0;                // tokens of a step, or of a chunk that goes layer by layer
  int piece = 0;                // tokens of a piece of such a chunk; 0: by steps
  int wave_pages = kWavePages;  // streamed at a time, of the rows on the host
  bool copies_experts = false;  // those on the host, once a layer and chunk
  DType out = DType::kBF16;     // of attention's output
  WeightLoad weights = {};
};

struct PromptCost {
  double seconds = 0;         // until the host has the logits
  double products = 0;        // of the products alone: no order of work takes less
  double link = 0;            // of the busier direction of the link
  uint64_t operations = 0;    // of the matrix products
  uint64_t attention = 0;     // those of attention
  uint64_t state_bytes = 0;   // softmax states, stored and loaded between waves
  uint64_t rows_back = 0;     // bytes of rows over the link to the device
  uint64_t rows_to_host = 0;  // bytes of new rows to the host
  uint64_t experts = 0;       // bytes of experts over the link to the device
};

PromptCost prompt_cost(const StepSettings& settings, const MachineRates& machine,
                       const PromptLoad& load);

}  // namespace fasa
