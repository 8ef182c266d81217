// A request that cannot be answered, in OpenAI's terms.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "bindings/http/server/http_message.h"

namespace fasa::serve {

// Thrown by the API layer; becomes {"error": {"message", "type", "param", "code"}}. Errors that
// would recur are 4xx, because clients retry a 5xx.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string type, const std::string& message, std::string param = "",
           std::string code = "")
      : std::runtime_error(without_nul(message)),
        status_(status),
        type_(std::move(type)),
        param_(std::move(param)),
        code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& type() const { return type_; }
  const std::string& param() const { return param_; }  // the field, "" = none
  const std::string& code() const { return code_; }    // "" = none
  int retry_after = 0;                                 // seconds, 0 = do not retry

  // 400, naming the field.
  static ApiError bad_field(const std::string& param, const std::string& message);
  // 400, in the words of the API that has the path. `field`: the prompt's.
  static ApiError long_prompt(std::string_view path, int64_t tokens, int64_t most,
                              const std::string& field);

 private:
  static std::string without_nul(std::string message);  // what() ends at the first

  int status_;
  std::string type_, param_, code_;
};

std::string error_json(const ApiError& error);
// {"type": "error", "error": {"type", "message"}}.
std::string anthropic_error_json(const ApiError& error);
std::string ollama_error_json(const ApiError& error);  // {"error": message}
// In the form of the API that has the path.
std::string error_json_for(std::string_view path, const ApiError& error);
HttpResponse error_response(const ApiError& error);
HttpResponse error_response(const ApiError& error, std::string body);
// For requests refused before they were parsed.
HttpResponse error_response(int status, const std::string& message);

}  // namespace fasa::serve
