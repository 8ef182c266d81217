// The answer's side of one request: a whole response, or a head and pieces of a body.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "bindings/http/server/http_message.h"

namespace fasa::serve {

// Thread-safe between exchanges; one thread at a time calls an exchange. If an exchange is
// destroyed before it has begun, it answers 500; afterwards it cuts the response off, which the
// client detects.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // The whole response, instead of begin, write and end.
  virtual void send(HttpResponse response) = 0;

  // Status and headers (the body is left out), then any number of pieces, then the end.
  virtual void begin(HttpResponse head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;

  // Calls `gone` once, on the server's thread, when the client disconnects before the end;
  // immediately if it already has. At most one function per exchange.
  virtual void on_gone(std::function<void()> gone) = 0;
};

}  // namespace fasa::serve
