#include "bindings/http/service.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <utility>

#include "bindings/http/api/apis.h"
#include "bindings/http/metrics_text.h"
#include "bindings/http/page.h"
#include "bindings/http/request_id.h"
#include "runtime/base/log.h"

namespace fasa::serve {
namespace {

constexpr size_t kJobThreads = 4;
constexpr size_t kMaxJobs = 64;  // queued

// Monitoring needs no key; these paths show no user's data.
bool is_public(const std::string& path) {
  return path.starts_with("/health") || web_file(path) != nullptr;
}

// The page needs nothing from elsewhere, and runs no script but its own.
HttpResponse page_response(const WebFile& file) {
  return {.headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; "
                       "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'; require-trusted-types-for 'script'; "
                       "trusted-types dompurify"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}},
          .content_type = file.content_type,
          .body = std::string(file.body)};
}

// A message without the folder of the model or of its file.
std::string without_folder(std::string message, const std::string& model_path) {
  const std::filesystem::path path(model_path);
  const bool is_file = std::filesystem::is_regular_file(path);
  const std::string folder = (is_file ? path.parent_path() : path).string();
  if (folder.empty()) return message;
  for (size_t at = 0; (at = message.find(folder, at)) != std::string::npos;) {
    const bool slash = at + folder.size() < message.size() && message[at + folder.size()] == '/';
    message.erase(at, folder.size() + (slash ? 1 : 0));
  }
  return message;
}

// Anthropic's clients send the key in a header of its own.
std::string authorization_of(const HttpRequest& request) {
  const std::string_view key = request.header("X-Api-Key");
  const std::string_view authorization = request.header("Authorization");
  return authorization.empty() && !key.empty() ? fmt::format("Bearer {}", key)
                                               : std::string(authorization);
}

void require_plain_body(const HttpRequest& request) {
  const std::string_view encoding = request.header("Content-Encoding");
  if (encoding.empty() || equal_ignoring_case(encoding, "identity")) return;
  throw ApiError(
      415, "invalid_request_error",
      fmt::format("Content-Encoding: \"{}\"; allowed: identity", encoding.substr(0, 40)));
}

// Clients join addresses and paths with one slash too many.
std::string plain_path(const std::string& path) {
  std::string plain;
  for (const char c : path) {
    if (c != '/' || !plain.ends_with('/')) plain += c;
  }
  if (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  return plain;
}

void list_sessions(Call& call, EngineLoop& engine) {
  Json list = Json::array();
  const auto kept = engine.status().sessions;
  for (const SessionStatus& session : *kept) {
    if (session.salt != call.salt) continue;
    list.push_back({{"id", session.id},
                    {"object", "session"},
                    {"title", session.title},
                    {"tokens", session.tokens},
                    {"in_memory", session.in_memory},
                    {"suspended_tokens", session.suspended_tokens},
                    {"device_bytes", session.device_bytes},
                    {"host_bytes", session.host_bytes},
                    {"disk_bytes", session.disk_bytes}});
  }
  call.send({{"object", "list"}, {"data", std::move(list)}});
}

void forget_session(Call& call, EngineLoop& engine) {
  const std::string& id = call.name;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
  const bool read = error == std::errc() && end == id.data() + id.size();
  if (!read || !engine.forget(call.salt, number)) {
    throw ApiError(404, "not_found_error",
                   fmt::format("session {} does not exist", id.substr(0, 40)), "", "not_found");
  }
  call.send({{"id", number}, {"object", "session"}, {"deleted", true}});
}

}  // namespace

Service::Service(ServiceOptions options, EngineLoop& engine, const text::Tokenizer& tokenizer,
                 const text::ChatTemplates* templates)
    : options_(std::move(options)),
      engine_(engine),
      log_(options_.log),
      completions_(options_, engine, tokenizer, templates, log_),
      routes_(own_routes()),
      jobs_(kJobThreads, kMaxJobs) {
  for (const auto routes :
       {openai_routes, responses_routes, messages_routes, ollama_routes, llama_routes}) {
    for (Route& route : routes(completions_)) routes_.push_back(std::move(route));
  }
}

Service::~Service() {
  jobs_.stop();  // no reply can begin after this
}

void Service::drain() { completions_.drain(); }

Routes Service::own_routes() {
  Routes routes = {
      {"GET", "/metrics",
       [this](Call& call) {
         call.exchange->send(
             {.content_type = "text/plain; version=0.0.4; charset=utf-8",
              .body = metrics_text(engine_.status(), counters_, options_.model_name)});
       },
       true},
      {"GET", "/v1/sessions", [this](Call& call) { list_sessions(call, engine_); }, true},
      {"DELETE", "/v1/sessions/", [this](Call& call) { forget_session(call, engine_); }}};
  for (const char* const path : {"/health", "/health/"}) {
    routes.push_back({"GET", path, [this](Call& call) { health(call); }, true});
  }
  return routes;
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  auto call = std::make_shared<Call>();
  call->request = std::move(request);
  call->request.path = plain_path(call->request.path);
  const std::string& path = call->request.path;
  call->id = request_id(call->request.header("X-Request-Id"));
  call->exchange = std::make_shared<IdentifiedExchange>(std::move(exchange), call->id);
  if (path.starts_with("/v1/messages")) call->exchange->add_header("Request-Id", call->id);
  const auto salt = options_.keys.salt_of(authorization_of(call->request));
  if (!salt && !is_public(path)) {
    const bool none = authorization_of(call->request).empty();
    return refuse(*call,
                  ApiError(401, "authentication_error",
                           none ? "this server requires an API key; send the header Authorization: "
                                  "Bearer KEY"
                                : "the API key in the header Authorization is not one of this "
                                  "server's; it is sent as: Bearer KEY",
                           "", none ? "missing_api_key" : "invalid_api_key"));
  }
  call->salt = salt.value_or("");
  const bool reads = call->request.method == "GET" || call->request.method == "HEAD";
  if (const WebFile* const file = web_file(path); file != nullptr && reads) {
    return call->exchange->send(page_response(*file));
  }
  const Route* route = nullptr;
  try {
    route = &find_route(routes_, *call);
  } catch (const ApiError& error) {
    return refuse(*call, error);
  }
  if (route->quick) return answer(*route, *call);
  if (jobs_.add([this, route, call] { answer(*route, *call); })) return;
  ApiError error(503, "server_error", "too many requests are being read; try again later");
  error.retry_after = 1;
  refuse(*call, error);
}

void Service::answer(const Route& route, Call& call) {
  try {
    require_plain_body(call.request);
    route.answer(call);
  } catch (const ApiError& error) {
    refuse(call, error);
  } catch (const Error& error) {
    refuse(call, api_error_of(error.kind(), without_folder(error.what(), options_.model_path)));
  } catch (const std::exception& error) {
    log_warning(fmt::format("{} {}: {}", call.request.method, call.request.path, error.what()));
    refuse(call, ApiError(500, "server_error", "the request failed; see the server's log"));
  }
}

void Service::refuse(const Call& call, const ApiError& error) {
  call.exchange->send(error_response(error, error_json_for(call.request.path, error)));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - call.came;
  log_.write({.id = call.id,
              .path = call.request.path.substr(0, 80),
              .status = error.status(),
              .seconds = took.count(),
              .end = error.what()});
}

void Service::health(Call& call) {
  const bool live = call.name == "live";
  if (const auto failure = engine_.failure()) {
    return call.exchange->send(error_response(503, "the device failed: " + *failure));
  }
  if (completions_.draining() && !live) {
    return call.exchange->send(error_response(503, "this server is shutting down"));
  }
  if (!call.name.empty() && !live && call.name != "ready") {
    return call.exchange->send(
        error_response(404, "unknown path; allowed: /health, /health/live, /health/ready"));
  }
  call.send({{"status", "ok"}});
}

}  // namespace fasa::serve
