#include "runtime/llm/generation/audit.h"

#include <algorithm>
#include <chrono>

#include "runtime/base/error.h"
#include "runtime/llm/generation/owned_sequence.h"

namespace fasa {

bool Audit::due(int64_t position) const {
  if (every_) return position - *last_ >= *every_;
  return position - *last_ >= kFirst && spent_ + longest_ <= kShare * decode_seconds_;
}

// A prompt's steps attend to all tokens.
bool Audit::before(Model& model, Runtime& runtime, SequenceId sequence, int32_t token) {
  full_.clear();
  const int64_t position = runtime.length(sequence);
  if (!last_) last_ = position - 1;
  if (!due(position)) return false;
  last_ = position;
  const auto begin = std::chrono::steady_clock::now();
  try {
    const OwnedSequence fork(runtime, runtime.fork(sequence, position));
    const StepSequence step[] = {{fork.id(), 1, StepMode::kPrefill}};
    const std::span<const float> logits = model.step(runtime, {&token, 1}, step);
    full_.assign(logits.begin(), logits.end());
  } catch (const BudgetError&) {
    // The answer needs the memory.
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  spent_ += took.count();
  longest_ = std::max(longest_, took.count());
  return !full_.empty();
}

AuditCounts Audit::after(std::span<const float> logits) {
  if (full_.empty()) return {};
  const double kl = kl_divergence(full_, logits);
  const bool same = best_token(full_) == best_token(logits);
  full_.clear();
  return {.tokens = 1, .same_best = same ? 1 : 0, .kl_sum = kl, .kl_max = kl};
}

}  // namespace fasa
