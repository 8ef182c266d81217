// HTTP/1.1 over TCP or a Unix socket, with a limit on everything. One thread of its own; handlers
// run on it and must not wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/http/server/http_exchange.h"

namespace fasa::serve {

struct HttpLimits {
  size_t header_bytes = size_t{16} << 10;
  size_t body_bytes = size_t{32} << 20;
  size_t backlog_bytes = size_t{8} << 20;  // of a response that its client does not read
  int connections = 256;
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte of a request on
  std::chrono::milliseconds idle_timeout{75'000};    // between requests
  std::chrono::milliseconds body_timeout{30'000};    // of no progress
  std::chrono::milliseconds write_timeout{30'000};   // of no progress
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, "localhost", or "unix:PATH"
  int port = 8080;                 // 0: any free one
  // Names that the Host header may have beside addresses and localhost, against DNS rebinding.
  std::vector<std::string> allowed_hosts = {};
  // Origins of web pages that may send requests, beside the server's own: "https://app.example:8443".
  std::vector<std::string> allowed_origins = {};
  HttpLimits limits = {};
};

// Counts of connections, and of requests that were refused before a handler saw them.
struct HttpCounters {
  std::atomic<uint64_t> connections{0};  // accepted
  std::atomic<uint64_t> open{0};
  std::atomic<uint64_t> refused_connections{0};
  std::atomic<uint64_t> bad_requests{0};
  std::atomic<uint64_t> timeouts{0};
};

class HttpServer {
 public:
  // Owns the request; answers through the exchange, now or later, from any thread.
  using Handler = std::function<void(HttpRequest, std::shared_ptr<HttpExchange>)>;
  // Makes the response to a request refused before the handler; its body should have the form of
  // the handler's errors.
  using Refusal = std::function<HttpResponse(int status, const std::string& message)>;

  // Binds and listens. Throws UsageError (address, port or path cannot be had).
  HttpServer(const HttpOptions& options, Handler handler, Refusal refusal);
  // Closes all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;  // connections refer to it
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;             // 0 for a Unix socket
  std::string address() const;  // "http://127.0.0.1:8080", "unix:/run/fasa.sock"
  const HttpCounters& counters() const;

  // No new connections and no further request on those that are open; responses go on to their end.
  void drain();
  // Waits until no connection is open, at most so long. False: some still are.
  bool wait_idle(std::chrono::milliseconds most);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether a name or address stands for this machine alone.
bool is_loopback(const std::string& host);

}  // namespace fasa::serve
