// What the engine is asked to generate, and what it tells about it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/llm/answer.h"

namespace fasa::serve {

// Hears of one request. Called on the engine's thread: must not wait, nor throw. After on_end of every
// choice, or on_error, nothing more comes.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  // `computed` of the prompt's `total` tokens are in the cache, `cached` of them were there before.
  virtual void on_prefill(int64_t computed, int64_t total, int64_t cached) = 0;
  // A choice took a token. Its answer has what is new; the call that ends it comes before on_end.
  virtual void on_token(int choice, const Answer& answer) = 0;
  // This and on_error come when the engine's status counts the end, unless the device is lost.
  virtual void on_end(int choice, const Answer& answer) = 0;
  virtual void on_error(ErrorKind kind, const std::string& message) = 0;
};

struct GenerationRequest {
  std::string salt = {};  // who may share its prefixes: a request sees those of its own salt
  std::vector<int32_t> prompt = {};
  std::string text = {};  // what a template rendered, if one did: of the prompt
  int choices = 1;
  AnswerOptions answer = {};  // of each choice; choice i draws with seed + i
  std::shared_ptr<RequestObserver> observer = {};
};

}  // namespace fasa::serve
