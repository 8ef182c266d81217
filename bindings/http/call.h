// A request on its way through the service: its client's salt and the target of its answer.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "bindings/http/api/request_fields.h"
#include "bindings/http/request_id.h"
#include "bindings/http/server/http_message.h"

namespace fasa::serve {

struct Call {
  HttpRequest request;
  std::shared_ptr<IdentifiedExchange> exchange;
  std::string id = {};    // see request_id.h
  std::string salt = {};  // of the request's API key
  std::string name = {};  // of the thing: what follows a route's path that ends in "/"
  std::chrono::steady_clock::time_point came = std::chrono::steady_clock::now();

  Json body() const { return parse_body(request.body); }  // throws ApiError
  void send(const Json& json) const { exchange->send({.body = json_text(json)}); }
};

}  // namespace fasa::serve
