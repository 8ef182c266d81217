// Decode steps of one answer, with drafts and audits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/llm/compute/model.h"
#include "runtime/llm/generation/answer.h"
#include "runtime/llm/generation/audit.h"
#include "runtime/llm/generation/draft_source.h"

namespace fasa {

class DraftedSteps {
 public:
  // All references must outlive it. `drafts`: see open_drafts(); may be null.
  DraftedSteps(Model& model, Runtime& runtime, SequenceId sequence, Answer& answer,
               const AnswerOptions& options, std::unique_ptr<DraftSource> drafts);

  // Computes the answer's last token and drafts behind it, and takes the tokens that follow; calls
  // `took` after each. Returns whether the answer continues. kept() tokens of those it computed are
  // the sequence's. Throws what Model::step() and Answer::take() do; then none are.
  bool step(const std::function<void()>& took);
  std::span<const int32_t> kept() const { return kept_; }

 private:
  std::span<const int32_t> propose();
  int judge(std::span<const float> logits, const std::function<void()>& took);

  Model& model_;
  Runtime& runtime_;
  SequenceId sequence_;
  Answer& answer_;
  int64_t max_tokens_;
  std::unique_ptr<DraftSource> drafts_;
  std::optional<Audit> audit_;
  BatchTimes times_;
  std::vector<int32_t> kept_;  // of the step: its tokens
  bool more_ = true;
};

}  // namespace fasa
