#include "runtime/llm/generation/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

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
      stop_(options.stop),
      tokenizer_(tokenizer) {
  options_.validate();
  if (tokenizer != nullptr) {
    eos_.insert(eos_.end(), tokenizer->ends().begin(), tokenizer->ends().end());
    std::vector<int32_t> shown;
    if (options_.reading != nullptr) {
      for (const auto& mark : options_.reading->format->codes.marks()) shown.push_back(mark.id);
      reader_ = std::make_unique<text::AnswerReader>(options_.reading);
    }
    continuation_.emplace(*tokenizer, prompt, shown);
  } else if (!options_.stop.empty()) {
    throw UsageError(
        "stop strings need a tokenizer; give a model that has a tokenizer.json, or remove them");
  }
  sampler_.see_prompt(prompt);
  if (options_.grammar != nullptr && !options_.grammar_of_calls) held_ = options_.grammar->begin();
}

std::span<const int32_t> Answer::format_ends() const {
  return options_.reading == nullptr ? std::span<const int32_t>() : options_.reading->format->ends;
}

bool Answer::is_eos(int32_t token) const {
  const auto is_in = [&](std::span<const int32_t> ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return is_in(eos_) || is_in(format_ends());
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
  for (const auto ids : {std::span<const int32_t>(eos_), format_ends()}) {
    for (const int32_t id : ids) {
      if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
      const auto at = static_cast<size_t>(id);
      masked_[at] = may_end ? logits[at] : std::numeric_limits<float>::quiet_NaN();
    }
  }
  return masked_;
}

// A call that no token of the vocabulary can continue is not held to its grammar.
std::span<const float> Answer::masked(std::span<const float> logits) {
  if (!held_) return logits;
  if (!options_.grammar_of_calls) return of_grammar(logits);
  try {
    return of_grammar(logits);
  } catch (const InputError&) {
    held_.reset();
    return logits;
  }
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
  mask(format_ends());
  if (early) mask(options_.stop_ids);
  return masked_;
}

// False: the text must end here. Between calls there is no grammar.
bool Answer::push_grammar(int32_t token) {
  if (!held_) return true;
  options_.grammar->push(*held_, token);
  if (!options_.grammar->is_whole(*held_)) return true;
  if (!options_.grammar_of_calls) return false;
  held_.reset();
  return !options_.reading->one_call;
}

std::optional<int32_t> Answer::forced() {
  const bool over = options_.reasoning_budget >= 0 && reader_ != nullptr && reader_->thinking() &&
                    reasoning_tokens_ >= options_.reasoning_budget;
  if (over && forced_.empty()) {
    const std::string mark = reader_->format().codes.spelled(reader_->thought_close());
    forced_ = tokenizer_->encode(mark, text::EncodeOptions{});
    std::reverse(forced_.begin(), forced_.end());
  }
  if (forced_.empty()) return std::nullopt;
  const int32_t token = forced_.back();
  forced_.pop_back();
  return token;
}

bool Answer::needs_mask() const { return held_ && !options_.grammar->is_known(*held_); }

// The grammar keeps the mask.
void Answer::prepare() {
  if (held_) options_.grammar->allowed(*held_);
}

void Answer::choose(std::span<const float> logits) {
  const auto mark = forced();
  Chosen chosen{.token = mark ? *mark : sampler_.next(without_ends(masked(logits)))};
  if (options_.logprobs) chosen.logprobs = logprobs_of(logits, chosen.token, *options_.logprobs);
  chosen_ = std::move(chosen);
}

bool Answer::take(std::span<const float> logits) {
  fresh_ = text_.size();
  pieces_.clear();
  if (!chosen_) choose(logits);
  Chosen chosen = *std::exchange(chosen_, std::nullopt);
  const int32_t token = chosen.token;
  if (is_eos(token)) return finish(AnswerEnd::kEndOfSequence);
  const bool open = push_grammar(token);
  tokens_.push_back(token);
  if (options_.logprobs) logprobs_.push_back(std::move(*chosen.logprobs));
  const bool early = std::ssize(tokens_) <= options_.min_tokens;  // stop strings do not count yet
  if (reader_ != nullptr && reader_->thinking()) ++reasoning_tokens_;
  if (continuation_) add_text(continuation_->push(token), token, !early);
  if (reader_ != nullptr && options_.grammar_of_calls && !held_ && reader_->at_call()) {
    held_ = options_.grammar->begin();
  }
  if (stop_.stopped()) return finish(AnswerEnd::kStopString);
  if (!early && is_stop(token)) return finish(AnswerEnd::kStopString);
  if (!open) return finish(AnswerEnd::kEndOfSequence);
  if (static_cast<int64_t>(tokens_.size()) < options_.max_tokens) return true;
  return finish(AnswerEnd::kMaxTokens);
}

// `token`: that ends the text, -1: none. `stops`: stop strings count.
void Answer::add_text(const std::string& text, int32_t token, bool stops) {
  if (reader_ == nullptr) {
    std::string content = stops ? stop_.push(text) : text;
    text_ += content;
    return add_content(std::move(content));
  }
  text_ += text;
  std::string coded = text;
  const auto& marks = reader_->format().codes.marks();
  for (const auto& mark : marks) {
    if (mark.id != token || !coded.ends_with(mark.text)) continue;
    coded.replace(coded.size() - mark.text.size(), mark.text.size(), 1, mark.code);
  }
  add_pieces(reader_->push(coded), stops);
}

void Answer::add_content(std::string text) {
  if (!text.empty()) pieces_.push_back({text::AnswerPiece::Kind::kContent, std::move(text)});
}

// Stop strings act on the content; they do not span a call or a thought.
void Answer::add_pieces(std::vector<text::AnswerPiece> pieces, bool stops) {
  for (text::AnswerPiece& piece : pieces) {
    if (stop_.stopped()) return;
    if (piece.kind == text::AnswerPiece::Kind::kContent) {
      add_content(stops ? stop_.push(piece.text) : std::move(piece.text));
      continue;
    }
    add_content(stop_.finish());
    pieces_.push_back(std::move(piece));
  }
}

void Answer::cancel() {
  fresh_ = text_.size();
  pieces_.clear();
  finish(AnswerEnd::kCancelled);
}

// The rest of the text may hold a stop string too.
bool Answer::finish(AnswerEnd end) {
  end_ = end;
  if (!continuation_ || stop_.stopped()) return false;
  add_text(continuation_->finish(), -1, true);
  if (reader_ != nullptr) add_pieces(reader_->finish(), true);
  std::string rest = stop_.finish();
  if (reader_ == nullptr) text_ += rest;
  if (stop_.stopped() && reader_ != nullptr) end_ = AnswerEnd::kStopString;
  if (!stop_.stopped() || reader_ == nullptr) add_content(std::move(rest));
  return false;
}

}  // namespace fasa
