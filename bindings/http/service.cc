#include "bindings/http/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "bindings/http/call.h"
#include "bindings/http/metrics_text.h"
#include "bindings/http/page.h"
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
bool is_public(const std::string& path) { return path.starts_with("/health") || path == "/"; }

std::vector<int32_t> special_marks(const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string& mark : message_marks()) {
    const auto id = tokenizer.token_id(mark);
    if (id && tokenizer.is_special(*id)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace

Service::Service(ServiceOptions options, EngineLoop& engine, const text::Tokenizer& tokenizer,
                 const text::ChatTemplates* templates)
    : options_(std::move(options)),
      engine_(engine),
      tokenizer_(tokenizer),
      templates_(templates),
      shown_marks_(special_marks(tokenizer)),
      known_(kKnownBytes),
      jobs_(kJobThreads, kMaxJobs),
      formatters_(kFormatThreads),
      pinger_([this] { ping_replies(); }) {
  for (Conversation& found : engine.take_found()) {
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
  call->exchange = std::move(exchange);
  const auto salt = options_.keys.salt_of(call->request.header("Authorization"));
  if (!salt && !is_public(call->request.path)) {
    return call->exchange->send(error_response(
        ApiError(401, "authentication_error",
                 "this server requires an API key; send the header Authorization: Bearer KEY", "",
                 "invalid_api_key")));
  }
  call->salt = salt.value_or("");
  if (auto response = answer_get(*call)) return call->exchange->send(std::move(*response));
  const bool queued = jobs_.add([this, call] { answer(*call); });
  if (!queued)
    call->exchange->send(error_response(503, "too many requests are being read; try again later"));
}

std::optional<HttpResponse> Service::answer_get(const Call& call) {
  if (call.request.path.starts_with("/health")) return health(call);
  if (call.is("GET", "/"))
    return HttpResponse{.content_type = "text/html; charset=utf-8", .body = kPage};
  if (call.is("GET", "/v1/models")) return models();
  if (call.is("GET", call.request.path) && !call.behind("/v1/models/").empty()) {
    return model(call.behind("/v1/models/"));
  }
  if (call.is("GET", "/metrics")) {
    return HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                        .body = metrics_text(engine_.status(), counters_, options_.model_name)};
  }
  if (call.is("GET", "/v1/sessions")) return sessions(call);
  return std::nullopt;
}

// On a job thread.
void Service::answer(Call& call) {
  try {
    if (call.is("POST", "/v1/chat/completions")) return chat(call);
    if (call.is("POST", "/v1/completions")) return complete(call);
    if (call.is("POST", "/v1/responses")) return respond(call);
    if (call.is("POST", "/tokenize")) return call.exchange->send(tokenize(call));
    if (call.is("POST", "/detokenize")) return call.exchange->send(detokenize(call));
    if (call.request.method == "DELETE" && !call.behind("/v1/sessions/").empty()) {
      return call.exchange->send(forget_session(call, call.behind("/v1/sessions/")));
    }
    throw ApiError(404, "not_found_error",
                   fmt::format("{} {} does not exist on this server", call.request.method,
                               call.request.path.substr(0, 80)),
                   "", "not_found");
  } catch (const ApiError& error) {
    call.exchange->send(error_response(error));
  } catch (const Error& error) {
    call.exchange->send(error_response(api_error_of(error.kind(), error.what())));
  } catch (const std::exception& error) {
    log_warning(fmt::format("{} {}: {}", call.request.method, call.request.path, error.what()));
    call.exchange->send(error_response(500, "the request failed; see the server's log"));
  }
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
