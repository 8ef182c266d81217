// The answer's side of one request: a whole response, or a head and pieces of a body.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "bindings/http/http_message.h"

namespace fasa::serve {

// Any thread may call; calls of one exchange come from one thread at a time. An exchange that is
// destroyed before its end was begun answers 500; a begun one is cut off, which a client sees.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // The whole response: instead of begin, write and end.
  virtual void send(HttpResponse response) = 0;

  // Status and headers (the body is left out), then any number of pieces, then the end.
  virtual void begin(HttpResponse head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;

  // Calls `gone` once, on the server's thread, when the client leaves before the end; at once where
  // it has left already. At most one function an exchange.
  virtual void on_gone(std::function<void()> gone) = 0;
};

}  // namespace fasa::serve
