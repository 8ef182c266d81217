#include "runtime/eval/decode_run.h"

#include <algorithm>
#include <array>

#include "offload/store/retention.h"
#include "runtime/eval/shared_prompt.h"

namespace fasa {

DecodeRun::DecodeRun(Model& model, Runtime& runtime, int64_t tokens, SharedPrompt* shared)
    : model_(model), sequence_(runtime), shared_(shared) {
  const int chunk = static_cast<int>(std::min<int64_t>(kEvalPrefillChunk, tokens));
  model.reserve(chunk);
  if (shared != nullptr) runtime.set_rollback_tokens(id(), kUnlimitedRollback);
  runtime.reserve(id(), tokens, chunk);
}

DecodeRun::DecodeRun(const DecodeRun& other, int64_t tokens)
    : model_(other.model_), sequence_(other.runtime(), other.runtime().fork(other.id(), tokens)) {}

void DecodeRun::prefill(std::span<const int32_t> ids) {
  if (shared_ != nullptr && shared_->copy_to(*this, ids)) return;
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min<size_t>(kEvalPrefillChunk, ids.size() - done);
    run(ids.subspan(done, count), StepMode::kPrefill, {.no_logits = true});
    done += count;
  }
  if (shared_ != nullptr) shared_->keep(*this, ids);
}

std::span<const float> DecodeRun::read(std::span<const int32_t> ids) {
  std::span<const float> logits;
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min<size_t>(kEvalPrefillChunk, ids.size() - done);
    logits = run(ids.subspan(done, count), StepMode::kPrefill, {});
    done += count;
  }
  return logits;
}

std::span<const float> DecodeRun::step(int32_t id) { return run({&id, 1}, StepMode::kDecode, {}); }

std::span<const float> DecodeRun::steps(std::span<const int32_t> ids) {
  return run(ids, StepMode::kDecode, {.all_logits = true});
}

std::span<const float> DecodeRun::run(std::span<const int32_t> ids, StepMode mode,
                                      const ForwardOptions& output) {
  const std::array step{StepSequence{id(), static_cast<int>(ids.size()), mode}};
  return model_.step(runtime(), ids, step, output);
}

}  // namespace fasa
