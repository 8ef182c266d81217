#include "runtime/llm/answer.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace fasa {

void AnswerOptions::validate() const {
  if (max_tokens < 1) {
    throw UsageError(fmt::format("max_tokens = {}; allowed: 1 or more", max_tokens));
  }
  constexpr int kMostLogprobs = 100;
  if (logprobs && (*logprobs < 0 || *logprobs > kMostLogprobs)) {
    throw UsageError(fmt::format("logprobs = {}; allowed: 0 to {}", *logprobs, kMostLogprobs));
  }
  sampling.validate();
}

Answer::Answer(const AnswerOptions& options, std::span<const int32_t> eos,
               const text::Tokenizer* tokenizer, std::span<const int32_t> prompt)
    : options_(options), eos_(eos), sampler_(options.sampling), stop_(options.stop) {
  options_.validate();
  if (tokenizer != nullptr) {
    continuation_.emplace(*tokenizer, prompt, options_.shown);
  } else if (!options_.stop.empty()) {
    throw UsageError("stop strings need a model with a tokenizer.json");
  }
  sampler_.see_prompt(prompt);
}

bool Answer::take(std::span<const float> logits) {
  fresh_ = text_.size();
  const int32_t token = sampler_.next(logits);
  if (std::find(eos_.begin(), eos_.end(), token) != eos_.end()) {
    return finish(AnswerEnd::kEndOfSequence);
  }
  tokens_.push_back(token);
  if (options_.logprobs) logprobs_.push_back(logprobs_of(logits, token, *options_.logprobs));
  if (continuation_) text_ += stop_.push(continuation_->push(token));
  if (stop_.stopped()) return finish(AnswerEnd::kStopString);
  if (static_cast<int64_t>(tokens_.size()) < options_.max_tokens) return true;
  return finish(AnswerEnd::kMaxTokens);
}

void Answer::cancel() {
  fresh_ = text_.size();
  finish(AnswerEnd::kCancelled);
}

bool Answer::finish(AnswerEnd end) {
  end_ = end;
  if (continuation_ && !stop_.stopped()) {
    text_ += stop_.push(continuation_->finish());
    text_ += stop_.finish();
  }
  return false;
}

}  // namespace fasa
