// A request to the engine, and the observer of its progress.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/llm/answer.h"

namespace fasa::serve {

// Observes one request. Called on the engine's thread: must not block or throw. No calls follow
// after on_end of every choice, or after on_error.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  // Called when the request is admitted, and after each chunk. `computed` of the prompt's `total`
  // tokens are in the cache; `cached` of them were there before. `computed` can decrease: then the
  // request stepped back for want of memory.
  virtual void on_prefill(int64_t computed, int64_t total, int64_t cached) = 0;
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
  // Tokens of the prompt before the part that begins the answer; 0: unknown. Templates render an
  // answer of the history in another way, so the next prompt may part here.
  int64_t history_tokens = 0;
  std::string text = {};   // the prompt's text as rendered by a template, if any
  std::string title = {};  // of the conversation, for its users
  int choices = 1;
  AnswerOptions answer = {};  // for each choice; choice i draws with seed + i
  std::shared_ptr<RequestObserver> observer = {};
};

}  // namespace fasa::serve
