// The id of a request: in the log and in the response's header X-Request-Id.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "bindings/http/server/http_exchange.h"

namespace fasa::serve {

// `given`, the client's own, if it is 1 to 64 letters, digits and ". _ : -"; else a new one.
std::string request_id(std::string_view given);

// Adds the id to the response, and other headers.
class IdentifiedExchange final : public HttpExchange {
 public:
  IdentifiedExchange(std::shared_ptr<HttpExchange> inner, std::string id)
      : inner_(std::move(inner)), headers_{{"X-Request-Id", std::move(id)}} {}

  // Before the response begins.
  void add_header(std::string name, std::string value) {
    headers_.emplace_back(std::move(name), std::move(value));
  }

  void send(HttpResponse response) override { inner_->send(identified(std::move(response))); }
  void begin(HttpResponse head) override { inner_->begin(identified(std::move(head))); }
  void write(std::string piece) override { inner_->write(std::move(piece)); }
  void end() override { inner_->end(); }
  void on_gone(std::function<void()> gone) override { inner_->on_gone(std::move(gone)); }

 private:
  HttpResponse identified(HttpResponse response) const {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    return response;
  }

  const std::shared_ptr<HttpExchange> inner_;
  HttpHeaders headers_;
};

}  // namespace fasa::serve
