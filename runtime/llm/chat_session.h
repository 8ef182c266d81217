// A conversation with a model whose KV cache keeps the history: each turn prefills only new tokens.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/answer.h"
#include "runtime/llm/model.h"
#include "runtime/llm/owned_sequence.h"
#include "runtime/text/chat_template.h"
#include "scheduler/cache/rollback_window.h"

namespace fasa {

struct ChatOptions {
  std::string system = "";  // the first message, of the role system; "": none
  AnswerOptions answer = {};
  int prefill_chunk = 512;
  // Tokens that can be taken back from the cache's end, where every layer sees a window only
  // (Runtime::set_rollback_tokens): behind that all is computed anew.
  int64_t rollback_tokens = kConversationRollback;
  std::tm now{};  // what templates show
  std::function<void(int64_t done, int64_t total)> on_prefill = {};
  std::function<void(std::string_view text)> on_text = {};
  // Asked after every step and chunk; true ends the answer, or gives a question up.
  std::function<bool()> cancelled = {};
};

struct ChatTurn {
  std::string text;
  AnswerEnd end = AnswerEnd::kOpen;
  int64_t prompt_tokens = 0;     // of the whole conversation up to the answer
  int64_t prefilled_tokens = 0;  // of those, what the cache did not hold
  int64_t answer_tokens = 0;
  int64_t decode_steps = 0;
  double prefill_seconds = 0;  // of wall time
  double decode_seconds = 0;
};

// Branches of one conversation share the cache of their common tokens. User text is never parsed
// for special tokens. One thread at a time. A runtime with predictor = next-query uses `model` as
// its query source from then on.
class ChatSession {
 public:
  // All outlive the session. Throws UsageError.
  ChatSession(Model& model, Runtime& runtime, const text::Tokenizer& tokenizer,
              const text::ChatTemplates& templates, ChatOptions options);

  // Throws UsageError if the model's positions do not suffice, TemplateError, BudgetError and
  // DeviceError. A question that failed, or was cancelled before its answer began (kCancelled
  // without tokens), leaves the conversation unchanged.
  ChatTurn ask(const std::string& question);
  // Takes the last question and its answer back. False: there is none.
  bool undo();
  // A new branch that begins as this one does, and is the current one from here on. Its number.
  size_t fork();
  // Makes another branch the current one. Throws UsageError for one that does not exist.
  void go_to(size_t branch);

  size_t branch() const { return current_; }  // from 0
  size_t branches() const { return branches_.size(); }
  const std::vector<text::ChatMessage>& messages() const { return branches_[current_]->messages; }
  int64_t cached_tokens() const { return static_cast<int64_t>(branches_[current_]->cached.size()); }

  // The ids of the prompt for a conversation, as ask() encodes it without a history.
  static std::vector<int32_t> prompt_ids(const text::Tokenizer& tokenizer,
                                         const text::ChatTemplates& templates,
                                         std::span<const text::ChatMessage> messages,
                                         const std::tm& now);

 private:
  // How much of a text and of its ids.
  struct Known {
    size_t text = 0;
    size_t ids = 0;
  };
  struct Encoded {
    std::vector<int32_t> ids;
    bool goes_on;  // begins with what was known
  };
  struct Branch {
    explicit Branch(Runtime& runtime) : sequence(runtime) {}
    Branch(Runtime& runtime, SequenceId id) : sequence(runtime, id) {}

    std::vector<text::ChatMessage> messages;
    OwnedSequence sequence;
    std::vector<int32_t> cached;  // ids whose keys and values the sequence holds
    // The last prompt and its answer: their text, and the ids that it came from.
    std::string known_text;
    std::vector<int32_t> known_ids;
    std::vector<Known> before;  // each turn: what was known before it, a part of what is known now
  };

  Encoded encode(const text::ChatPrompt& prompt, const Branch& branch) const;
  void remember(Branch& branch, const text::ChatPrompt& prompt, const Encoded& encoded,
                const Answer& answer) const;
  int64_t room_for_answer(size_t prompt_tokens) const;
  void keep_common(Branch& branch, std::span<const int32_t> ids);
  std::span<const float> prefill(Branch& branch, std::span<const int32_t> ids, ChatTurn* turn);
  void decode(Branch& branch, Answer& answer, bool more, ChatTurn* turn);
  std::span<const float> step(Branch& branch, std::span<const int32_t> ids, StepMode mode,
                              bool logits);
  bool cancelled() const { return options_.cancelled && options_.cancelled(); }

  Model& model_;
  Runtime& runtime_;
  const text::Tokenizer& tokenizer_;
  const text::ChatTemplates& templates_;
  ChatOptions options_;
  std::vector<std::unique_ptr<Branch>> branches_;
  size_t current_ = 0;
};

}  // namespace fasa
