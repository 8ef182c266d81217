// What the drafts of a model's head of multi-token prediction share: the head, the keys and values
// of its layer, and memory for the hidden states of a step.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/compute/model.h"

namespace fasa {

class MtpCache {
 public:
  static constexpr int kPieceTokens = 256;  // of the head's steps, at most

  // `row_dtype`: of keys and values, which are in device memory and all attended to. The model
  // must outlive it. Throws UsageError (the model has no head, see WeightOptions::mtp_head),
  // BudgetError.
  MtpCache(const Model& model, RowDType row_dtype);

  Model& head() const { return head_; }
  Runtime& runtime() { return runtime_; }
  int hidden() const { return head_.config().hidden; }
  // Device memory for the hidden states of so many tokens; the last contents are lost. Throws
  // BudgetError.
  float* states(int tokens);
  Buffer allocate_states(int tokens) const;

 private:
  Model& head_;
  Runtime runtime_;
  Buffer states_;
};

// None: the model was loaded without its head.
std::optional<MtpCache> open_mtp_cache(const Model& model, const Runtime& runtime);

}  // namespace fasa
