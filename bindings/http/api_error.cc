#include "bindings/http/api_error.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace fasa::serve {
namespace {

nlohmann::json or_null(const std::string& text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

std::string type_of(int status) {
  if (status == 401 || status == 403) return "authentication_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

std::string ApiError::without_nul(std::string message) {
  for (size_t at = 0; (at = message.find('\0', at)) != std::string::npos;) {
    message.replace(at, 1, "\\0");
  }
  return message;
}

ApiError ApiError::bad_field(const std::string& param, const std::string& message) {
  return {400, "invalid_request_error", param + ": " + message, param, "invalid_value"};
}

ApiError ApiError::long_prompt(std::string_view path, int64_t tokens, int64_t most,
                               const std::string& field) {
  const char* const code = "context_length_exceeded";
  if (path.starts_with("/v1/messages")) {
    return {400, "invalid_request_error",
            fmt::format("prompt is too long: {} tokens > {} maximum", tokens, most - 1), field,
            code};
  }
  if (path.starts_with("/api/")) {
    return {400, "invalid_request_error",
            fmt::format("the input length exceeds the context length: {} tokens; allowed: {}",
                        tokens, most - 1),
            field, code};
  }
  if (path.starts_with("/v1/responses")) {
    return {400, "invalid_request_error",
            fmt::format("Your input exceeds the context window of this model: {} tokens; allowed: "
                        "{}. Please adjust your input and try again.",
                        tokens, most - 1),
            field, code};
  }
  if (!path.starts_with("/v1/")) {  // llama.cpp's
    return {400, "exceed_context_size_error",
            fmt::format("request ({} tokens) exceeds the available context size ({} tokens), try "
                        "increasing it",
                        tokens, most),
            field, code};
  }
  return {400, "invalid_request_error",
          fmt::format("This model's maximum context length is {} tokens. However, your prompt has "
                      "{} tokens. Please reduce its length.",
                      most, tokens),
          field, code};
}

std::string error_json(const ApiError& error) {
  const nlohmann::ordered_json json = {{"error",
                                        {{"message", error.what()},
                                         {"type", error.type()},
                                         {"param", or_null(error.param())},
                                         {"code", or_null(error.code())}}}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string anthropic_error_json(const ApiError& error) {
  std::string type = error.type();
  if (error.status() == 413) type = "request_too_large";
  if (error.status() >= 500) type = error.status() == 503 ? "overloaded_error" : "api_error";
  const nlohmann::ordered_json json = {{"type", "error"},
                                       {"error", {{"type", type}, {"message", error.what()}}}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ollama_error_json(const ApiError& error) {
  const nlohmann::ordered_json json = {{"error", error.what()}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string error_json_for(std::string_view path, const ApiError& error) {
  if (path.starts_with("/v1/messages")) return anthropic_error_json(error);
  return path.starts_with("/api/") ? ollama_error_json(error) : error_json(error);
}

HttpResponse error_response(const ApiError& error) {
  return error_response(error, error_json(error));
}

HttpResponse error_response(const ApiError& error, std::string body) {
  HttpResponse response{.status = error.status(), .body = std::move(body)};
  if (error.retry_after > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  }
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse error_response(int status, const std::string& message) {
  ApiError error(status, type_of(status), message);
  if (status == 503) error.retry_after = 1;
  return error_response(error);
}

}  // namespace fasa::serve
