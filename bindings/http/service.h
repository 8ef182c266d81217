// Answers the server's routes. Independent of sockets: takes requests, sends responses to
// exchanges.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "bindings/http/api_error.h"
#include "bindings/http/api_keys.h"
#include "bindings/http/http_server.h"
#include "bindings/http/job_pool.h"
#include "bindings/http/model_answers.h"
#include "bindings/http/openai_request.h"
#include "bindings/http/reply.h"
#include "bindings/http/reply_form.h"
#include "bindings/http/request_log.h"
#include "bindings/http/slots.h"
#include "bindings/http/stored_responses.h"
#include "runtime/llm/generation_defaults.h"
#include "runtime/serve/engine_loop.h"
#include "runtime/serve/known_texts.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace fasa::serve {

// Bytes of the cache per token of a long conversation.
struct TokenMemory {
  uint64_t device = 0, host = 0;
};

struct ResponsesRequest;  // responses_request.h

struct ServiceOptions {
  std::string model_name;       // in /v1/models
  bool any_model_name = false;  // requests may name any model
  std::string model_path = {};  // not shown to clients
  int64_t created = 0;          // seconds since 1970
  int64_t max_context = 0;      // tokens of a prompt and its answer
  int64_t vocab_size = 0;
  GenerationDefaults defaults = {};
  TokenMemory token_memory = {};
  ApiKeys keys = {};
  std::chrono::milliseconds ping_after{15'000};
  LogForm log = LogForm::kNone;  // of requests
  std::function<std::tm()> now;  // for chat templates
};

class Service {
 public:
  // `templates` may be null: chat requests are then refused. Everything but the options must
  // outlive it.
  Service(ServiceOptions options, EngineLoop& engine, const text::Tokenizer& tokenizer,
          const text::ChatTemplates* templates);
  ~Service();
  Service(const Service&) = delete;  // its threads refer to it
  Service& operator=(const Service&) = delete;

  // Returns at once: longer work continues in threads of the service.
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  // Added to the engine's in GET /metrics.
  void set_counters(const HttpCounters* counters) { counters_ = counters; }
  // From now on /health/ready reports that no requests are accepted.
  void drain() { draining_ = true; }

 private:
  struct Call;        // a request and the target of its answer
  struct Generation;  // what to generate, and the form of the reply

  void answer(Call& call);
  void refuse(const Call& call, const ApiError& error);
  std::optional<HttpResponse> answer_get(const Call& call);
  HttpResponse health(const Call& call);
  HttpResponse models() const;
  HttpResponse model(const std::string& name) const;
  HttpResponse sessions(const Call& call);
  HttpResponse forget_session(const Call& call, const std::string& id);
  HttpResponse tokenize(const Call& call) const;
  HttpResponse detokenize(const Call& call) const;
  void chat(Call& call);
  void complete(Call& call);
  void complete_llama(Call& call);
  void chat_ollama(Call& call);
  void generate_ollama(Call& call);
  HttpResponse ollama_models() const;
  HttpResponse show_ollama(const Call& call) const;
  HttpResponse props() const;
  HttpResponse slots() const;
  int take_slot(const Call& call, Generation& generation);
  void act_on_slot(Call& call);
  void save_slot(Call& call, int64_t slot, std::vector<int32_t> ids);
  HttpResponse restore_slot(const Call& call, int64_t slot);
  HttpResponse erase_slot(const Call& call, int64_t slot, const std::vector<int32_t>& ids);
  void respond(Call& call);
  ResponsesRequest responses_request(const Call& call) const;
  HttpResponse stored_response(const Call& call, const std::string& id) const;
  HttpResponse delete_response(const Call& call, const std::string& id);
  void count_input(Call& call);
  void converse(Call& call);
  void count_messages(Call& call);

  void check_model(const CompletionFields& fields) const;
  AnswerOptions answer_options(const CompletionFields& fields, size_t prompt_tokens) const;
  Generation text_generation(const CompletionRequest& request);
  Generation chat_generation(const Call& call, const ChatRequest& request);
  std::vector<int32_t> encode(const std::string& salt, const text::ChatPrompt& prompt);
  void check_ids(std::span<const int32_t> ids, const char* field) const;
  ReplyHead reply_head(const char* prefix) const;
  text::ChatPrompt render(const Json& context, const char* prompt_field) const;
  ApiError refusal() const;
  void start(Call& call, Generation generation);
  std::vector<uint64_t> submit(std::vector<GenerationRequest> requests,
                               const std::shared_ptr<Reply>& reply);
  Json model_json() const;
  void ping_replies();

  const ServiceOptions options_;
  EngineLoop& engine_;
  const text::Tokenizer& tokenizer_;
  const text::ChatTemplates* const templates_;
  ModelAnswers answers_;
  RequestLog log_;
  const HttpCounters* counters_ = nullptr;
  std::atomic<bool> draining_{false};
  std::mutex known_mutex_;
  KnownTexts known_;
  const std::shared_ptr<RecordIndex> records_ = std::make_shared<RecordIndex>();
  Slots slots_;
  std::mutex replies_mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::list<std::weak_ptr<Reply>> replies_;
  JobPool jobs_;        // reading requests
  JobPool formatters_;  // of answers
  std::thread pinger_;
};

}  // namespace fasa::serve
