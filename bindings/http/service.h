// Answers the server's routes. Independent of sockets: takes requests, sends responses to
// exchanges.
#pragma once

#include <memory>

#include "bindings/http/api_error.h"
#include "bindings/http/completions.h"
#include "bindings/http/job_pool.h"
#include "bindings/http/request_log.h"
#include "bindings/http/routes.h"
#include "bindings/http/server/http_server.h"
#include "bindings/http/service_options.h"

namespace fasa::serve {

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
  void drain();

 private:
  void answer(const Route& route, Call& call);
  void refuse(const Call& call, const ApiError& error);
  Routes own_routes();
  void health(Call& call);

  const ServiceOptions options_;
  EngineLoop& engine_;
  RequestLog log_;
  const HttpCounters* counters_ = nullptr;
  Completions completions_;
  Routes routes_;
  JobPool jobs_;  // reading requests
};

}  // namespace fasa::serve
