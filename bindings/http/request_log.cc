#include "bindings/http/request_log.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace fasa::serve {
namespace {

double rounded(double value, double steps) { return std::round(value * steps) / steps; }

std::string json_line(const LoggedRequest& request) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  nlohmann::ordered_json json = {
      {"time", rounded(std::chrono::duration<double>(now).count(), 1e3)},  // seconds since 1970
      {"id", request.id},
      {"path", request.path},
      {"status", request.status},
      {"prompt_tokens", request.prompt_tokens},
      {"cached_tokens", request.cached_tokens},
      {"recomputed_tokens", nlohmann::ordered_json::object()},
      {"completion_tokens", request.completion_tokens}};
  for (size_t i = 0; i < kLossNames.size(); ++i) {
    if (request.recomputed_tokens[i] == 0) continue;
    json["recomputed_tokens"][kLossNames[i]] = request.recomputed_tokens[i];
  }
  const auto add_known = [&](const char* name, double value) {
    json[name] = value > 0 ? nlohmann::ordered_json(rounded(value, 10)) : nullptr;
  };
  add_known("ttft_ms", request.first_token_seconds * 1e3);
  add_known("tokens_per_second", request.tokens_per_second);
  add_known("total_ms", request.seconds * 1e3);
  json["end"] = request.end;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_line(const LoggedRequest& request) {
  std::string line = fmt::format("{} {} {}: ", request.id, request.path, request.status);
  if (request.prompt_tokens > 0) {
    line +=
        fmt::format("prompt {} tokens, {} cached", request.prompt_tokens, request.cached_tokens);
    for (size_t i = 0; i < kLossNames.size(); ++i) {
      if (request.recomputed_tokens[i] == 0) continue;
      line += fmt::format(", {} computed again ({})", request.recomputed_tokens[i], kLossNames[i]);
    }
    line += "; ";
  }
  if (request.first_token_seconds > 0) {
    line += fmt::format("first token after {:.3g} s; answer {} tokens", request.first_token_seconds,
                        request.completion_tokens);
    if (request.tokens_per_second > 0) {
      line += fmt::format(", {:.3g} tokens/s", request.tokens_per_second);
    }
    line += "; ";
  }
  return line + request.end;
}

}  // namespace

std::string log_line(const LoggedRequest& request, LogForm form) {
  if (form == LogForm::kJson) return json_line(request);
  std::string line = text_line(request);
  for (char& c : line) {  // a message may quote the request
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  return line;
}

void RequestLog::write(const LoggedRequest& request) {
  if (form_ == LogForm::kNone) return;
  const std::string line = log_line(request, form_) + "\n";
  const std::lock_guard lock(mutex_);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace fasa::serve
