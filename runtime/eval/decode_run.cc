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
  if (shared != nullptr) runtime.set_rollback_tokens(sequence_.id(), kUnlimitedRollback);
  runtime.reserve(sequence_.id(), tokens, chunk);
}

DecodeRun::DecodeRun(const DecodeRun& other, int64_t tokens)
    : model_(other.model_),
      sequence_(other.sequence_.runtime(),
                other.sequence_.runtime().fork(other.sequence_.id(), tokens)) {}

void DecodeRun::prefill(std::span<const int32_t> ids) {
  if (shared_ != nullptr && shared_->copy_to(*this, ids)) return;
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min<size_t>(kEvalPrefillChunk, ids.size() - done);
    const std::array step{
        StepSequence{sequence_.id(), static_cast<int>(count), StepMode::kPrefill}};
    model_.step(sequence_.runtime(), ids.subspan(done, count), step, {.no_logits = true});
    done += count;
  }
  if (shared_ != nullptr) shared_->keep(*this, ids);
}

std::span<const float> DecodeRun::step(int32_t id) {
  const std::array step{StepSequence{sequence_.id(), 1, StepMode::kDecode}};
  return model_.step(sequence_.runtime(), {&id, 1}, step);
}

std::span<const float> DecodeRun::steps(std::span<const int32_t> ids) {
  const std::array step{
      StepSequence{sequence_.id(), static_cast<int>(ids.size()), StepMode::kDecode}};
  return model_.step(sequence_.runtime(), ids, step, {.all_logits = true});
}

}  // namespace fasa
