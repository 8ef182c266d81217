// A model's answer as it comes: tokens from logits, text from tokens, and where it ends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/llm/logprobs.h"
#include "runtime/llm/sampler.h"
#include "runtime/text/continuation.h"
#include "runtime/text/grammar/token_grammar.h"
#include "runtime/text/stop_strings.h"
#include "runtime/text/tokenizer.h"

namespace fasa {

struct AnswerOptions {
  int64_t max_tokens = 128;
  Sampling sampling = {};
  std::vector<std::string> stop = {};  // end the text where they begin
  std::optional<int> logprobs = {};    // for each token its own, and those of the best N
  std::vector<int32_t> shown = {};     // special tokens that the text shows
  std::shared_ptr<text::TokenGrammar> grammar = {};  // what the text must be; null: any

  // Throws UsageError naming the option that is impossible.
  void validate() const;
};

enum class AnswerEnd { kOpen, kEndOfSequence, kStopString, kMaxTokens, kCancelled };

// The answer of one sequence; it holds all of its state. The loop that steps the model feeds one
// Answer per sequence. One thread at a time.
class Answer {
 public:
  // `tokenizer` may be null: there is no text then, and no stop strings are allowed. It and `eos`
  // outlive the answer. Throws UsageError.
  Answer(const AnswerOptions& options, std::span<const int32_t> eos,
         const text::Tokenizer* tokenizer, std::span<const int32_t> prompt);

  // Takes a token from the logits [vocab] behind the last one. True: the answer goes on, and
  // tokens().back() is what the model reads next. Throws InputError where no token is one of the
  // grammar's.
  bool take(std::span<const float> logits);
  // Ends an answer that its reader has enough of.
  void cancel();

  AnswerEnd end() const { return end_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }  // without an end-of-sequence id
  const std::string& text() const { return text_; }               // all that is certain
  // What the last call made certain. Text is held back while a character is incomplete, or a stop
  // string may begin in it; the call that ends the answer gives the rest.
  std::string_view fresh() const { return std::string_view(text_).substr(fresh_); }
  const std::vector<TokenLogprobs>& logprobs() const { return logprobs_; }  // of each token

 private:
  bool finish(AnswerEnd end);
  std::span<const float> of_grammar(std::span<const float> logits);
  bool is_eos(int32_t token) const;

  AnswerOptions options_;
  std::span<const int32_t> eos_;
  Sampler sampler_;
  std::optional<text::Continuation> continuation_;
  text::StopStrings stop_;
  std::optional<text::TokenGrammar::Text> held_;  // to the grammar: what is written of it
  std::vector<float> masked_;                     // logits, NaN where the grammar allows no token
  std::vector<int32_t> tokens_;
  std::vector<TokenLogprobs> logprobs_;
  std::string text_;
  size_t fresh_ = 0;  // where it begins
  AnswerEnd end_ = AnswerEnd::kOpen;
};

}  // namespace fasa
