#include "runtime/llm/generation/drafted_step.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {

DraftedSteps::DraftedSteps(Model& model, Runtime& runtime, SequenceId sequence, Answer& answer,
                           const AnswerOptions& options, std::unique_ptr<DraftSource> drafts)
    : model_(model),
      runtime_(runtime),
      sequence_(sequence),
      answer_(answer),
      max_tokens_(options.max_tokens),
      drafts_(std::move(drafts)) {
  if (options.audit_every != 0) audit_.emplace(options.audit_every);
}

// No more than may follow: memory was reserved for these.
std::span<const int32_t> DraftedSteps::propose() {
  if (!drafts_) return {};
  drafts_->append(answer_.tokens().back());
  const int64_t most = std::min<int64_t>(runtime_.info(sequence_).max_drafted,
                                         max_tokens_ - std::ssize(answer_.tokens()));
  return drafts_->propose(static_cast<int>(most) - 1, 0, times_);
}

int DraftedSteps::judge(std::span<const float> logits, const std::function<void()>& took) {
  const size_t vocab = logits.size() / kept_.size();
  if (audit_) answer_.count_audit(audit_->after(logits.first(vocab)));
  size_t kept = 1;
  for (;; ++kept) {
    more_ = answer_.take(logits.subspan((kept - 1) * vocab, vocab));
    took();
    if (!more_ || kept == kept_.size() || answer_.tokens().back() != kept_[kept]) break;
    drafts_->append(kept_[kept]);
  }
  return static_cast<int>(kept);
}

bool DraftedSteps::step(const std::function<void()>& took) {
  kept_.assign(1, answer_.tokens().back());
  const std::span<const int32_t> drafts = propose();
  kept_.insert(kept_.end(), drafts.begin(), drafts.end());
  if (audit_) audit_->before(model_, runtime_, sequence_, kept_.front());
  float* const states =
      drafts_ ? drafts_->step_states(static_cast<int>(std::ssize(kept_))) : nullptr;
  const auto begin = std::chrono::steady_clock::now();
  int kept = 0;
  const auto run = [&] {
    const StepSequence step[] = {{sequence_, static_cast<int>(kept_.size()), StepMode::kDecode}};
    const auto judge_all = [&](std::span<const float> logits) {
      kept = judge(logits, took);
      return std::vector<int>{kept};
    };
    model_.step_with_drafts(runtime_, kept_, step, judge_all, states);
  };
  try {
    run();
  } catch (const BudgetError&) {
    // Several tokens take more scratch.
    if (kept_.size() == 1 || kept > 0) throw;
    kept_.resize(1);
    run();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (audit_) audit_->decoded(seconds.count());
  if (drafts_) {
    times_.measured(static_cast<int>(kept_.size()), seconds.count());
    drafts_->judged(kept - 1);
    answer_.count_drafts({.made = std::ssize(kept_) - 1, .right = kept - 1});
    if (more_) drafts_->computed(states, kept);
  }
  kept_.resize(static_cast<size_t>(kept));
  return more_;
}

}  // namespace fasa
