// A request on its way through the service: its client's salt and the target of its answer.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "bindings/http/request_id.h"
#include "bindings/http/service.h"

namespace fasa::serve {

struct Service::Call {
  HttpRequest request;
  std::shared_ptr<IdentifiedExchange> exchange;
  std::string id = {};    // see request_id.h
  std::string salt = {};  // of the request's API key
  std::chrono::steady_clock::time_point came = std::chrono::steady_clock::now();

  bool is(std::string_view method, std::string_view path) const {
    const bool same = request.method == method || (method == "GET" && request.method == "HEAD");
    return same && request.path == path;
  }
  // The path after `prefix`; "" if the path does not begin with it.
  std::string behind(std::string_view prefix) const {
    return request.path.starts_with(prefix) ? request.path.substr(prefix.size()) : std::string();
  }
};

}  // namespace fasa::serve
