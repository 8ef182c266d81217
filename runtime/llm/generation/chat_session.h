// A chat with a model. The KV cache holds the history, so each turn prefills only its new tokens.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "offload/store/retention.h"
#include "runtime/api/prefill_chunk.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/generation/answer.h"
#include "runtime/llm/generation/draft_source.h"
#include "runtime/llm/generation/mtp_cache.h"
#include "runtime/llm/generation/owned_sequence.h"
#include "runtime/llm/generation/token_log.h"
#include "runtime/text/chat_template.h"

namespace fasa {

struct ChatOptions {
  std::string system = "";  // the first message, role "system"; "": none
  AnswerOptions answer = {};
  int64_t max_context = 0;               // tokens of a conversation; 0: the model's positions
  int prefill_chunk = kMinPrefillChunk;  // or kAutomaticChunk
  // Rollback window, in tokens, of models whose layers all have a sliding window
  // (Runtime::set_rollback_tokens). Rolling back further recomputes the whole conversation.
  int64_t rollback_tokens = kConversationRollback;
  std::tm now{};  // date and time that templates print
  std::function<void(int64_t done, int64_t total)> on_prefill = {};
  // The answer's text; its reasoning comes between <think> and </think>.
  std::function<void(std::string_view text)> on_text = {};
  // Polled after every step and prefill chunk; true ends the answer, or cancels the question.
  std::function<bool()> cancelled = {};
};

struct ChatTurn {
  std::string text;  // of the answer, without its reasoning
  std::string reasoning;
  AnswerEnd end = AnswerEnd::kOpen;
  int64_t prompt_tokens = 0;     // the whole conversation, without the answer
  int64_t prefilled_tokens = 0;  // part of prompt_tokens that was not in the cache
  int64_t answer_tokens = 0;
  int64_t decoded_tokens = 0;
  double prefill_seconds = 0;  // wall time
  double decode_seconds = 0;
};

// Branches of one conversation share the cache of their common prefix. User text is never parsed
// for special tokens. One thread at a time.
class ChatSession {
 public:
  // All arguments must outlive the session. Throws UsageError.
  ChatSession(Model& model, Runtime& runtime, const text::Tokenizer& tokenizer,
              const text::ChatTemplates& templates, ChatOptions options);

  // Throws UsageError if the model's positions do not suffice, TemplateError, BudgetError and
  // DeviceError. A question that fails, or is cancelled before the first token (kCancelled without
  // tokens), leaves the conversation unchanged.
  ChatTurn ask(const std::string& question);
  // Removes the last question and its answer. False: there is none.
  bool undo();
  // Copies the current branch and makes the copy current. Returns its number.
  size_t fork();
  // Makes another branch the current one. Throws UsageError for one that does not exist.
  void go_to(size_t branch);

  size_t branch() const { return current_; }  // from 0
  size_t branches() const { return branches_.size(); }
  const std::vector<text::ChatMessage>& messages() const { return branches_[current_]->messages; }
  int64_t cached_tokens() const { return branches_[current_]->cached; }

  // Token ids of the prompt for a conversation, as ask() encodes it for an empty history.
  static std::vector<int32_t> prompt_ids(const text::Tokenizer& tokenizer,
                                         const text::ChatTemplates& templates,
                                         std::span<const text::ChatMessage> messages,
                                         const std::tm& now);

 private:
  // Lengths of a known text and of its ids.
  struct Known {
    size_t text = 0;
    size_t ids = 0;
  };
  struct Encoded {
    std::vector<int32_t> ids;
    bool goes_on;  // the prompt begins with the known text
  };
  struct Branch {
    explicit Branch(Runtime& runtime) : sequence(runtime) {}
    Branch(Runtime& runtime, SequenceId id) : sequence(runtime, id) {}

    std::vector<text::ChatMessage> messages;
    OwnedSequence sequence;
    // How the conversation's tokens were computed, and are again: if a sequence cannot be cut where
    // a question begins, the tokens in between are computed as before.
    TokenLog log;
    int64_t cached = 0;  // of them, those that the sequence holds
    // Text of the last prompt and its answer, and the ids it was encoded to.
    std::string known_text;
    std::vector<int32_t> known_ids;
    std::vector<Known> before;  // for each turn: the lengths before it
  };

  Encoded encode(const text::ChatPrompt& prompt, const Branch& branch) const;
  void remember(Branch& branch, const text::ChatPrompt& prompt, const Encoded& encoded,
                const Answer& answer) const;
  int64_t room_for_answer(size_t prompt_tokens) const;
  void keep_common(Branch& branch, std::span<const int32_t> ids);
  std::span<const float> read(Branch& branch, std::span<const int32_t> ids, ChatTurn* turn);
  std::optional<std::span<const float>> read_by_layers(Branch& branch, std::span<const int32_t> ids,
                                                       const std::function<void(int64_t)>& on_done);
  void decode(Branch& branch, Answer& answer, const AnswerOptions& options, bool more,
              ChatTurn* turn);
  void publish(const Answer& answer, ChatTurn* turn) const;
  std::span<const float> step(Branch& branch, std::span<const int32_t> ids, Computed how,
                              bool logits);
  static void log(Branch& branch, std::span<const int32_t> ids, Computed how);
  bool cancelled() const { return options_.cancelled && options_.cancelled(); }

  Model& model_;
  Runtime& runtime_;
  const text::Tokenizer& tokenizer_;
  const text::ChatTemplates& templates_;
  ChatOptions options_;
  text::HistoryForm history_;
  std::shared_ptr<const text::CodedFormat> format_;  // of answers
  std::optional<MtpCache> mtp_;
  std::unique_ptr<DraftSource> drafts_;  // of the question under way, until its answer begins
  std::vector<std::unique_ptr<Branch>> branches_;
  size_t current_ = 0;
  int chunk_ = kMinPrefillChunk;  // of the question under way
};

}  // namespace fasa
