#include "runtime/llm/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/base/error.h"

namespace fasa {

void AnswerOptions::validate() const {
  if (max_tokens < 1) {
    throw UsageError(fmt::format("max_tokens = {}; allowed: 1 or more", max_tokens));
  }
  constexpr int kMaxLogprobs = 100;
  if (min_tokens < 0 || min_tokens > max_tokens) {
    throw UsageError(
        fmt::format("min_tokens = {}; allowed: 0 to max_tokens, {}", min_tokens, max_tokens));
  }
  if (logprobs && (*logprobs < 0 || *logprobs > kMaxLogprobs)) {
    throw UsageError(fmt::format("logprobs = {}; allowed: 0 to {}", *logprobs, kMaxLogprobs));
  }
  sampling.validate();
}

Answer::Answer(const AnswerOptions& options, std::span<const int32_t> eos,
               const text::Tokenizer* tokenizer, std::span<const int32_t> prompt)
    : options_(options),
      eos_(eos.begin(), eos.end()),
      sampler_(options.sampling),
      stop_(options.stop) {
  options_.validate();
  if (tokenizer != nullptr) {
    eos_.insert(eos_.end(), tokenizer->ends().begin(), tokenizer->ends().end());
    continuation_.emplace(*tokenizer, prompt, options_.shown);
  } else if (!options_.stop.empty()) {
    throw UsageError(
        "stop strings need a tokenizer; give a model that has a tokenizer.json, or remove them");
  }
  sampler_.see_prompt(prompt);
  if (options_.grammar != nullptr) held_ = options_.grammar->begin();
}

bool Answer::is_eos(int32_t token) const {
  return std::find(eos_.begin(), eos_.end(), token) != eos_.end();
}

// Masked tokens are NaN: the sampler never takes NaN while another token is left.
std::span<const float> Answer::of_grammar(std::span<const float> logits) {
  const auto mask = options_.grammar->allowed(*held_);
  const bool may_end = options_.grammar->may_end(*held_);
  masked_.assign(logits.size(), std::numeric_limits<float>::quiet_NaN());
  const size_t words = std::min(mask->size(), (logits.size() + 63) / 64);
  for (size_t word = 0; word < words; ++word) {
    for (uint64_t left = (*mask)[word]; left != 0; left &= left - 1) {
      const size_t id = word * 64 + static_cast<size_t>(std::countr_zero(left));
      if (id < logits.size()) masked_[id] = logits[id];
    }
  }
  for (const int32_t id : eos_) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    const auto at = static_cast<size_t>(id);
    masked_[at] = may_end ? logits[at] : std::numeric_limits<float>::quiet_NaN();
  }
  return masked_;
}

bool Answer::is_stop(int32_t token) const {
  const auto& ids = options_.stop_ids;
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

// Masks the tokens that would end the answer too early. `logits` may be masked_.
std::span<const float> Answer::without_ends(std::span<const float> logits) {
  const bool early = std::ssize(tokens_) < options_.min_tokens;
  if (!early && !options_.ignore_eos) return logits;
  if (logits.data() != masked_.data()) masked_.assign(logits.begin(), logits.end());
  const auto mask = [&](std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      if (id < 0 || static_cast<size_t>(id) >= masked_.size()) continue;
      masked_[static_cast<size_t>(id)] = std::numeric_limits<float>::quiet_NaN();
    }
  };
  mask(eos_);
  if (early) mask(options_.stop_ids);
  return masked_;
}

bool Answer::take(std::span<const float> logits) {
  fresh_ = text_.size();
  const int32_t token = sampler_.next(without_ends(held_ ? of_grammar(logits) : logits));
  if (is_eos(token)) return finish(AnswerEnd::kEndOfSequence);
  if (held_) options_.grammar->push(*held_, token);
  tokens_.push_back(token);
  if (options_.logprobs) logprobs_.push_back(logprobs_of(logits, token, *options_.logprobs));
  const bool early = std::ssize(tokens_) <= options_.min_tokens;  // stop strings do not count yet
  if (continuation_) {
    std::string text = continuation_->push(token);
    text_ += early ? std::move(text) : stop_.push(text);
  }
  if (stop_.stopped()) return finish(AnswerEnd::kStopString);
  if (!early && is_stop(token)) return finish(AnswerEnd::kStopString);
  if (held_ && options_.grammar->is_whole(*held_)) return finish(AnswerEnd::kEndOfSequence);
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
