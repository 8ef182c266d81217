// A request to the engine, and the observer of its progress.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/llm/generation/answer.h"

namespace fasa::serve {

// Tokens of a prompt that are computed again though an earlier request had them, by what was lost.
enum class Loss : uint8_t {
  kTemplate,  // the template renders the same messages in another way
  kClient,    // the client changed its messages
  kEvicted,   // their memory was needed
  kState,     // the sequence cannot be cut there
};
inline constexpr std::array<const char*, 4> kLossNames = {"template", "client", "evicted", "state"};
using Recomputed = std::array<int64_t, kLossNames.size()>;  // tokens by Loss

// Observes one request. Called on the engine's thread: must not block or throw. No calls follow
// after on_end of every choice, or after on_error.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  // Called when the request is admitted, and after each step or slot of pieces. `computed` of the
  // prompt's `total` tokens are read, those of a chunk under way by its layers; `cached` of them
  // were in the cache before. `computed` can decrease: then the request stepped back, or lost a
  // chunk, for want of memory.
  virtual void on_prefill(int64_t computed, int64_t total, int64_t cached) = 0;
  // Before the first on_prefill.
  virtual void on_recomputed(const Recomputed& /*tokens*/) {}
  // A choice got a token, now in its answer. Also called for the last token, before on_end.
  virtual void on_token(int choice, const Answer& answer) = 0;
  // on_end and on_error come after the engine's status has counted the end, unless the device is
  // lost.
  virtual void on_end(int choice, const Answer& answer) = 0;
  virtual void on_error(ErrorKind kind, const std::string& message) = 0;
};

struct GenerationRequest {
  std::string salt = {};  // requests share prefixes only within one salt
  std::vector<int32_t> prompt = {};
  // Where the next prompt may part from this one, in tokens; 0: unknown. Before the part that
  // begins the answer, because templates render an answer of the history in another way; and behind
  // the user's last message, because they drop the reasoning that came before it.
  int64_t history_tokens = 0;
  int64_t user_tokens = 0;
  // Tokens of the conversation so far whose text this prompt does not repeat, about, and why.
  int64_t parted_tokens = 0;
  Loss parting = Loss::kTemplate;
  std::string text = {};   // the prompt's text as rendered by a template, if any
  std::string title = {};  // of the conversation, for its users
  int choices = 1;
  AnswerOptions answer = {};  // for each choice; choice i draws with seed + i
  std::shared_ptr<RequestObserver> observer = {};
};

}  // namespace fasa::serve
