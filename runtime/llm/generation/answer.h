// One answer of a model: picks tokens from logits, decodes them to text, decides where it ends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/draft_kind.h"
#include "runtime/llm/generation/divergence.h"
#include "runtime/llm/generation/logprobs.h"
#include "runtime/llm/generation/sampler.h"
#include "runtime/text/answer/answer_reader.h"
#include "runtime/text/continuation.h"
#include "runtime/text/grammar/token_grammar.h"
#include "runtime/text/stop_strings.h"
#include "runtime/text/tokenizer.h"

namespace fasa {

struct AnswerOptions {
  int64_t max_tokens = 128;
  Sampling sampling = {};
  std::vector<std::string> stop = {};  // strings that end the content; not part of it
  std::optional<int> logprobs = {};    // log-probabilities of each token and of the best N
  // For the loop that steps the model: where drafts come from, and a text that the answer may
  // repeat, beside the prompt.
  DraftKind drafts = DraftKind::kNone;
  std::vector<int32_t> prediction = {};
  std::optional<int> audit_every = 0;  // for it too: see Audit; 0: no comparison
  std::vector<int32_t> stop_ids = {};  // tokens that end the answer; part of it
  int64_t min_tokens = 0;              // before these no end, but by max_tokens
  bool ignore_eos = false;             // the model cannot end the answer
  // Tokens of reasoning, about; after these the mark that ends it is written; below 0: no limit. It
  // needs `reading`.
  int64_t reasoning_budget = -1;
  // How the answer is taken apart; null: its text is content.
  std::shared_ptr<const text::AnswerReading> reading = {};
  std::shared_ptr<text::TokenGrammar> grammar = {};  // grammar that the text must match; null: none
  // The grammar is that of calls, from behind the mark that begins them. It needs `reading`.
  bool grammar_of_calls = false;

  // Throws UsageError naming the invalid option.
  void validate() const;
};

enum class AnswerEnd { kOpen, kEndOfSequence, kStopString, kMaxTokens, kCancelled };

// The answer of one sequence; it holds all of its state. The loop that steps the model feeds one
// Answer per sequence. One thread at a time.
class Answer {
 public:
  // `eos`: tokens that end the answer, beside those of the tokenizer. `tokenizer` may be null: the
  // answer then has no text, and stop strings are an error; it must outlive the answer. Throws
  // UsageError.
  Answer(const AnswerOptions& options, std::span<const int32_t> eos,
         const text::Tokenizer* tokenizer, std::span<const int32_t> prompt);

  // Picks a token from the logits [vocab] of the last position. True: the answer continues, and
  // tokens().back() is the model's next input. Throws InputError if the grammar allows no token.
  bool take(std::span<const float> logits);
  // Picks the token that take() takes next, of the same logits: for several answers side by side.
  // Throws as take() does; nothing has changed then.
  void choose(std::span<const float> logits);
  // Whether the next take() has to compute what the grammar allows. prepare() does so before,
  // beside the model's step; no other call meanwhile. What it throws, take() throws again.
  bool needs_mask() const;
  void prepare();
  // Ends the answer early.
  void cancel();
  // Says how many of its next tokens were drafted, and how many drafts were right.
  struct DraftCounts {
    int64_t made = 0, right = 0;
    DraftCounts& operator+=(const DraftCounts& more) {
      made += more.made, right += more.right;
      return *this;
    }
  };
  void count_drafts(const DraftCounts& more) { drafts_ += more; }
  DraftCounts drafts() const { return drafts_; }
  // The same for tokens compared with full attention (Audit).
  void count_audit(const AuditCounts& more) { audit_ += more; }
  const AuditCounts& audit() const { return audit_; }

  AnswerEnd end() const { return end_; }
  const std::string& stop_string() const { return stop_.found(); }  // that ended it; "": none did
  const std::vector<int32_t>& tokens() const { return tokens_; }    // without an end-of-sequence id
  // Final text only, see fresh(). With a reader it is the whole text, marks and stop string too.
  const std::string& text() const { return text_; }
  // Text that the last call added. Text is held back while a character is incomplete or a stop
  // string may have begun; the call that ends the answer releases the rest.
  std::string_view fresh() const { return std::string_view(text_).substr(fresh_); }
  // The same as pieces: of the reader, else of content alone.
  const std::vector<text::AnswerPiece>& pieces() const { return pieces_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }            // approximate
  const std::vector<TokenLogprobs>& logprobs() const { return logprobs_; }  // of each token

 private:
  struct Chosen {
    int32_t token;
    std::optional<TokenLogprobs> logprobs = std::nullopt;  // if they are asked for
  };
  bool finish(AnswerEnd end);
  void add_text(const std::string& text, int32_t token, bool stops);
  void add_pieces(std::vector<text::AnswerPiece> pieces, bool stops);
  void add_content(std::string text);
  bool push_grammar(int32_t token);
  // Tokens that end an answer of the format, besides the model's own.
  std::span<const int32_t> format_ends() const;
  std::span<const float> masked(std::span<const float> logits);
  std::span<const float> of_grammar(std::span<const float> logits);
  std::span<const float> without_ends(std::span<const float> logits);
  bool is_stop(int32_t token) const;
  // The next token of a mark that ends a thought which is too long.
  std::optional<int32_t> forced();
  bool is_eos(int32_t token) const;

  AnswerOptions options_;
  std::vector<int32_t> eos_;
  Sampler sampler_;
  std::optional<text::Continuation> continuation_;
  std::unique_ptr<text::AnswerReader> reader_;
  text::StopStrings stop_;
  std::optional<text::TokenGrammar::Text> held_;  // the grammar's state after the text so far
  std::vector<float> masked_;                     // logits, NaN where a token is not allowed
  std::optional<Chosen> chosen_;                  // by choose()
  std::vector<int32_t> tokens_;
  std::vector<TokenLogprobs> logprobs_;
  std::string text_;
  size_t fresh_ = 0;  // where fresh() begins in text_
  std::vector<text::AnswerPiece> pieces_;
  int64_t reasoning_tokens_ = 0;
  const text::Tokenizer* tokenizer_;
  std::vector<int32_t> forced_;  // tokens of a mark that are not written yet, the last first
  DraftCounts drafts_;
  AuditCounts audit_;
  AnswerEnd end_ = AnswerEnd::kOpen;
};

}  // namespace fasa
