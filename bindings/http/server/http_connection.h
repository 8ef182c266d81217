// One client's connection: reads a request, has it answered, reads the next. Everything happens on
// the server's thread; exchanges post to it.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "bindings/http/server/http_server.h"

namespace fasa::serve {

// State shared by all connections of a server; they share its ownership.
struct HttpShared {
  explicit HttpShared(const HttpOptions& http_options) : options(http_options) {}

  // Runs on the server's thread; not at all, once that has ended. From any thread.
  template <typename Call>
  void post(Call call) {
    const std::lock_guard lock(mutex_);
    if (work_) boost::asio::post(io, std::move(call));
  }
  // Runs the calls posted so far; later ones are dropped. The thread ends with the last connection.
  void end() {
    const std::lock_guard lock(mutex_);
    work_.reset();
  }

  boost::asio::io_context io{1};
  const HttpOptions options;
  HttpServer::Handler handler;
  HttpServer::Refusal refusal;
  HttpCounters counters;
  bool any_host = false;  // a Unix socket: no Host header to check
  bool draining = false;  // the server's thread alone reads and writes it

 private:
  std::mutex mutex_;
  // While there is none to answer the thread waits, too: an answer's exchange may end after it.
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_{
      io.get_executor()};
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Protocol = boost::asio::generic::stream_protocol;

  HttpConnection(Protocol::socket socket, std::shared_ptr<HttpShared> shared);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;  // pending operations refer to it
  HttpConnection& operator=(const HttpConnection&) = delete;

  void start();
  void refuse(int status, const std::string& message);  // instead of start(): answers, closes
  // No request is read any more; one that is being answered is answered to its end.
  void drain();
  // At once.
  void close();
  // Since when there has been no complete request; none: one is being answered.
  std::optional<std::chrono::steady_clock::time_point> without_request_since() const;

  HttpShared& shared() { return *shared_; }

  // For exchange number `exchange`, on the server's thread; those of an older one do nothing.
  void send(uint64_t exchange, HttpResponse response);
  void begin(uint64_t exchange, const HttpResponse& head);
  void write(uint64_t exchange, const std::string& piece);
  void end(uint64_t exchange);
  void watch(uint64_t exchange, std::function<void()> gone);
  void abandon(uint64_t exchange);

 private:
  enum class State { kIdle, kReading, kResponding, kClosing };
  enum class Body { kNone, kSized, kChunked, kUntilClose };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using ErrorCode = boost::beast::error_code;

  // The operation under way is cancelled then, and sees timed_out_.
  void expire_after(std::chrono::milliseconds time);
  void expire_never();
  void read_first_byte();
  void read_header();
  void read_body();
  void fail_reading(const ErrorCode& error);
  // Nothing to say: the header is in order.
  std::optional<std::pair<int, std::string>> complaint() const;
  // A page whose origin may not send requests: why.
  std::optional<std::pair<int, std::string>> origin_complaint() const;
  bool is_preflight() const;
  void answer_preflight();
  bool expects_continue() const;
  void handle();
  void watch_client();

  bool answers(uint64_t exchange) const {
    return state_ == State::kResponding && exchange == exchange_;
  }
  void write_head(const HttpResponse& head, std::optional<size_t> length);
  void finish_response();
  void enqueue(std::string_view bytes);
  void flush();
  void after_flush();
  void linger();

  const std::shared_ptr<HttpShared> shared_;
  Protocol::socket socket_;
  boost::asio::steady_timer timer_;
  bool timed_out_ = false;
  std::chrono::steady_clock::time_point without_request_since_{};
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  State state_ = State::kIdle;
  uint64_t exchange_ = 0;  // the number of the request that is being answered
  // How the request that is being answered is answered.
  struct Manner {
    Body body = Body::kNone;
    bool keep_alive = true;
    bool head_only = false;
    bool old_version = false;  // HTTP/1.0
    std::string origin;        // of the page that sent the request, "" = none
  } manner_;
  bool finished_ = false;  // the response is enqueued to its end
  bool begun_ = false;
  bool watching_ = false;
  std::function<void()> gone_;
  struct Output {
    std::string pending, sending;
    size_t sent = 0;
    bool writing = false;
  } output_;
};

}  // namespace fasa::serve
