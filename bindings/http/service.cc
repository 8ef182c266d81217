#include "bindings/http/service.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "bindings/http/call.h"
#include "bindings/http/gzip.h"
#include "bindings/http/metrics_text.h"
#include "bindings/http/page.h"
#include "bindings/http/request_id.h"
#include "runtime/base/log.h"

namespace fasa::serve {
namespace {

constexpr size_t kJobThreads = 4;
constexpr size_t kMaxJobs = 64;  // queued
// Several threads, so that formatting one long answer does not delay the others.
constexpr size_t kFormatThreads = 2;
constexpr size_t kKnownBytes = size_t{64} << 20;

HttpResponse json_response(const Json& json) {
  return {.body = json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

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

// Undoes the body's Content-Encoding.
void unpack(HttpRequest& request) {
  const std::string_view encoding = request.header("Content-Encoding");
  if (encoding.empty() || equal_ignoring_case(encoding, "identity")) return;
  if (!equal_ignoring_case(encoding, "gzip")) {
    throw ApiError(
        415, "invalid_request_error",
        fmt::format("Content-Encoding: \"{}\"; allowed: gzip, identity", encoding.substr(0, 40)));
  }
  request.body = gunzip(request.body, HttpLimits{}.body_bytes);
}

}  // namespace

Service::Service(ServiceOptions options, EngineLoop& engine, const text::Tokenizer& tokenizer,
                 const text::ChatTemplates* templates)
    : options_(std::move(options)),
      engine_(engine),
      tokenizer_(tokenizer),
      templates_(templates),
      answers_(templates, tokenizer),
      log_(options_.log),
      known_(kKnownBytes, tokenizer),
      slots_(engine.options().max_sequences),
      jobs_(kJobThreads, kMaxJobs),
      formatters_(kFormatThreads),
      pinger_([this] { ping_replies(); }) {
  for (Conversation& found : engine.take_found()) {
    for (const auto& record : found.records) records_->add(found.salt, record);
    if (found.text.empty()) continue;
    std::vector<int32_t> ids(found.log.ids().begin(), found.log.ids().end());
    ids.insert(ids.end(), found.ahead.begin(), found.ahead.end());
    known_.remember(std::move(found.salt), std::move(found.text), std::move(ids));
  }
}

Service::~Service() {
  jobs_.stop();  // no reply can begin after this
  {
    const std::lock_guard lock(replies_mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  pinger_.join();
  for (const auto& one : replies_) {
    if (const auto reply = one.lock()) reply->close();
  }
  formatters_.stop();
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  auto call = std::make_shared<Call>();
  call->request = std::move(request);
  std::string& path = call->request.path;
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  call->id = request_id(call->request.header("X-Request-Id"));
  call->exchange = std::make_shared<IdentifiedExchange>(std::move(exchange), call->id);
  if (path.starts_with("/v1/messages")) call->exchange->add_header("Request-Id", call->id);
  const auto salt = options_.keys.salt_of(authorization_of(call->request));
  if (!salt && !is_public(call->request.path)) {
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
  if (auto response = answer_get(*call)) return call->exchange->send(std::move(*response));
  const bool queued = jobs_.add([this, call] { answer(*call); });
  if (queued) return;
  ApiError error(503, "server_error", "too many requests are being read; try again later");
  error.retry_after = 1;
  refuse(*call, error);
}

std::optional<HttpResponse> Service::answer_get(const Call& call) {
  if (call.request.path.starts_with("/health")) return health(call);
  if (const WebFile* const file = web_file(call.request.path);
      file != nullptr && call.is("GET", call.request.path)) {
    return page_response(*file);
  }
  if (call.is("GET", "/v1/models")) return models();
  if (call.is("GET", call.request.path) && !call.behind("/v1/models/").empty()) {
    return model(call.behind("/v1/models/"));
  }
  if (call.is("GET", "/metrics")) {
    return HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = metrics_text(engine_.status(), counters_, options_.model_name)};
  }
  if (call.is("GET", "/v1/sessions")) return sessions(call);
  if (call.is("GET", "/api/version")) return json_response({{"version", FASA_VERSION}});
  if (call.is("GET", "/api/tags")) return ollama_models();
  if (call.is("GET", "/props")) return props();
  if (call.is("GET", "/slots")) return slots();
  return std::nullopt;
}

// On a job thread.
void Service::answer(Call& call) {
  try {
    unpack(call.request);
    if (call.is("POST", "/v1/chat/completions")) return chat(call);
    if (call.is("POST", "/v1/completions")) return complete(call);
    if (call.is("POST", "/v1/responses")) return respond(call);
    if (call.is("POST", "/api/chat")) return chat_ollama(call);
    if (call.is("POST", "/api/generate")) return generate_ollama(call);
    if (call.is("POST", "/api/show")) return call.exchange->send(show_ollama(call));
    if (call.is("POST", "/completion")) return complete_llama(call);
    if (call.request.method == "POST" && !call.behind("/slots/").empty()) return act_on_slot(call);
    if (call.is("POST", "/v1/messages")) return converse(call);
    if (call.is("POST", "/v1/messages/count_tokens")) return count_messages(call);
    if (call.is("POST", "/v1/responses/input_tokens")) return count_input(call);
    if (call.is("POST", "/v1/embeddings")) {
      throw ApiError(501, "not_implemented_error",
                     "this server computes no embeddings; it generates text", "",
                     "not_implemented");
    }
    if (call.is("POST", "/tokenize")) return call.exchange->send(tokenize(call));
    if (call.is("POST", "/detokenize")) return call.exchange->send(detokenize(call));
    if (call.request.method == "DELETE" && !call.behind("/v1/sessions/").empty()) {
      return call.exchange->send(forget_session(call, call.behind("/v1/sessions/")));
    }
    const std::string response = call.behind("/v1/responses/");
    if (!response.empty() && call.is("GET", call.request.path)) {
      return call.exchange->send(stored_response(call, response));
    }
    if (!response.empty() && call.request.method == "DELETE") {
      return call.exchange->send(delete_response(call, response));
    }
    throw ApiError(404, "not_found_error",
                   fmt::format("{} {} does not exist on this server", call.request.method,
                               call.request.path.substr(0, 80)),
                   "", "not_found");
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
  const std::string& path = call.request.path;
  call.exchange->send(error_response(error, path.starts_with("/v1/messages")
                                                ? anthropic_error_json(error)
                                            : path.starts_with("/api/") ? ollama_error_json(error)
                                                                        : error_json(error)));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - call.came;
  log_.write({.id = call.id,
              .path = call.request.path.substr(0, 80),
              .status = error.status(),
              .seconds = took.count(),
              .end = error.what()});
}

HttpResponse Service::health(const Call& call) {
  if (const auto failure = engine_.failure()) {
    return error_response(503, "the device failed: " + *failure);
  }
  if (call.request.path == "/health/live") return json_response({{"status", "ok"}});
  if (draining_) return error_response(503, "this server is shutting down");
  if (call.request.path != "/health" && call.request.path != "/health/ready") {
    return error_response(404, "unknown path; allowed: /health, /health/live, /health/ready");
  }
  return json_response({{"status", "ok"}});
}

namespace {

Json ollama_details() {
  return {{"parent_model", ""},  {"format", ""},         {"family", ""},
          {"families", nullptr}, {"parameter_size", ""}, {"quantization_level", ""}};
}

}  // namespace

HttpResponse Service::ollama_models() const {
  const auto created = static_cast<std::time_t>(options_.created);
  const std::string at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(created));
  Json model = {{"name", options_.model_name},
                {"model", options_.model_name},
                {"modified_at", at},
                {"size", 0},
                {"digest", ""},
                {"details", ollama_details()}};
  return json_response({{"models", Json::array({std::move(model)})}});
}

HttpResponse Service::show_ollama(const Call& call) const {
  const Json body = parse_body(call.request.body);
  CompletionFields fields;
  fields.model = RequestFields(body, "").string("model").value_or("");
  if (fields.model.ends_with(":latest")) fields.model.resize(fields.model.rfind(':'));
  check_model(fields);
  Json abilities = Json::array({"completion"});
  if (answers_.calls_tools()) abilities.push_back("tools");
  if (answers_.thinks()) abilities.push_back("thinking");
  return json_response(
      {{"modelfile", ""},
       {"parameters", ""},
       {"template", templates_ == nullptr ? "" : templates_->source("", false)},
       {"details", ollama_details()},
       {"model_info",
        {{"general.architecture", "fasa"}, {"fasa.context_length", options_.max_context}}},
       {"capabilities", std::move(abilities)}});
}

Json Service::model_json() const {
  return {{"id", options_.model_name},
          {"object", "model"},
          {"created", options_.created},
          {"owned_by", "fasa"},
          {"max_model_len", options_.max_context}};
}

HttpResponse Service::models() const {
  return json_response({{"object", "list"}, {"data", Json::array({model_json()})}});
}

HttpResponse Service::model(const std::string& name) const {
  if (name == options_.model_name) return json_response(model_json());
  return error_response(
      ApiError(404, "not_found_error",
               fmt::format("model \"{}\" does not exist on this server; it serves \"{}\"",
                           name.substr(0, 80), options_.model_name),
               "model", "model_not_found"));
}

HttpResponse Service::sessions(const Call& call) {
  Json list = Json::array();
  const auto kept = engine_.status().sessions;
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
  return json_response({{"object", "list"}, {"data", std::move(list)}});
}

HttpResponse Service::forget_session(const Call& call, const std::string& id) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
  const bool read = error == std::errc() && end == id.data() + id.size();
  if (!read || !engine_.forget(call.salt, number)) {
    throw ApiError(404, "not_found_error",
                   fmt::format("session {} does not exist", id.substr(0, 40)), "", "not_found");
  }
  return json_response({{"id", number}, {"object", "session"}, {"deleted", true}});
}

HttpResponse Service::tokenize(const Call& call) const {
  const Json body = parse_body(call.request.body);
  const RequestFields fields(body, "");
  const auto content = fields.string("content");
  if (!content) throw ApiError::bad_field("content", "missing; allowed: a string");
  const text::EncodeOptions options{
      .add_special = fields.boolean("add_special").value_or(false),
      .parse_special = fields.boolean("parse_special").value_or(true)};
  Json tokens = Json::array();
  for (const int32_t id : tokenizer_.encode(*content, options)) tokens.push_back(id);
  return json_response({{"tokens", std::move(tokens)}});
}

HttpResponse Service::detokenize(const Call& call) const {
  const Json body = parse_body(call.request.body);
  const Json* const tokens = RequestFields(body, "").find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    throw ApiError::bad_field("tokens", "allowed: a list of token ids");
  }
  std::vector<int32_t> ids;
  for (size_t i = 0; i < tokens->size(); ++i) {
    const Json& token = (*tokens)[i];
    const bool good = token.is_number_integer() && token.get<int64_t>() >= 0 &&
                      token.get<int64_t>() < tokenizer_.vocab_size();
    if (!good) {
      throw ApiError::bad_field(
          fmt::format("tokens[{}]", i),
          fmt::format("{}; allowed: 0 to {}", kind_of(token), tokenizer_.vocab_size() - 1));
    }
    ids.push_back(token.get<int32_t>());
  }
  return json_response({{"content", tokenizer_.decode(ids, false)}});
}

void Service::ping_replies() {
  constexpr std::chrono::milliseconds kLook{1000};
  std::unique_lock lock(replies_mutex_);
  while (!stopped_.wait_for(lock, kLook, [this] { return stopping_; })) {
    std::vector<std::shared_ptr<Reply>> open;
    replies_.remove_if([&](const std::weak_ptr<Reply>& reply) {
      open.push_back(reply.lock());
      return open.back() == nullptr;
    });
    lock.unlock();
    for (const auto& reply : open) {
      if (reply != nullptr) reply->ping(options_.ping_after);
    }
    open.clear();
    lock.lock();
  }
}

}  // namespace fasa::serve
