// One line a request on standard error.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "runtime/serve/generation_request.h"

namespace fasa::serve {

enum class LogForm { kNone, kText, kJson };

struct LoggedRequest {
  std::string id = {};
  std::string path = {};
  int status = 200;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  Recomputed recomputed_tokens{};
  int64_t completion_tokens = 0;
  double first_token_seconds = 0;  // since the request came; 0: there was none
  double tokens_per_second = 0;    // after the first; 0: not known
  double seconds = 0;              // until the end
  std::string end = {};            // "stop", "length", "tool_calls", "cancelled", or an error
};

std::string log_line(const LoggedRequest& request, LogForm form);

// From any thread.
class RequestLog {
 public:
  explicit RequestLog(LogForm form) : form_(form) {}

  void write(const LoggedRequest& request);

 private:
  const LogForm form_;
  std::mutex mutex_;
};

}  // namespace fasa::serve
