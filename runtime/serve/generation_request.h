// What the engine is asked to generate, and what it tells about it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/llm/sampler.h"

namespace fasa::serve {

enum class FinishReason { kStop, kLength, kCancelled };

struct TokenChoice {
  int32_t id = 0;
  // Natural logarithms of the probabilities that the model gave, before temperature and cuts; with
  // the request's top_logprobs, the best first.
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top = {};
};

// Hears of one request. Called on the engine's thread: must not wait, nor throw. After on_finish of
// every choice, or on_error, nothing more comes.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  // `computed` of the prompt's `total` tokens are in the cache, `cached` of them were there before.
  virtual void on_prefill(int64_t computed, int64_t total, int64_t cached) = 0;
  // False: this choice ends here (a stop string was found).
  virtual bool on_token(int choice, const TokenChoice& token) = 0;
  virtual void on_finish(int choice, FinishReason reason) = 0;
  virtual void on_error(ErrorKind kind, const std::string& message) = 0;
};

struct GenerationRequest {
  std::string salt = {};  // who may share its prefixes: a request sees those of its own salt
  std::vector<int32_t> prompt = {};
  int choices = 1;
  Sampling sampling = {};  // choice i draws with seed + i
  int64_t max_tokens = 0;  // of each choice
  bool logprobs = false;
  int top_logprobs = 0;
  std::shared_ptr<RequestObserver> observer = {};
};

}  // namespace fasa::serve
