#include "bindings/http/server/http_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <iterator>
#include <utility>

#include "bindings/http/server/origins.h"

namespace fasa::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr std::chrono::milliseconds kLinger{2000};

// Exchanges may live on any thread; the connection lives on the server's thread.
class Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<HttpConnection> connection, uint64_t number)
      : connection_(std::move(connection)), number_(number) {}
  ~Exchange() override {
    post([number = number_](HttpConnection& connection) { connection.abandon(number); });
  }

  void send(HttpResponse response) override {
    post([number = number_, response = std::move(response)](HttpConnection& connection) mutable {
      connection.send(number, std::move(response));
    });
  }
  void begin(HttpResponse head) override {
    post([number = number_, head = std::move(head)](HttpConnection& connection) {
      connection.begin(number, head);
    });
  }
  void write(std::string piece) override {
    post([number = number_, piece = std::move(piece)](HttpConnection& connection) {
      connection.write(number, piece);
    });
  }
  void end() override {
    post([number = number_](HttpConnection& connection) { connection.end(number); });
  }
  void on_gone(std::function<void()> gone) override {
    post([number = number_, gone = std::move(gone)](HttpConnection& connection) mutable {
      connection.watch(number, std::move(gone));
    });
  }

 private:
  template <typename Call>
  void post(Call call) {
    connection_->shared().post(
        [connection = connection_, call = std::move(call)]() mutable { call(*connection); });
  }

  const std::shared_ptr<HttpConnection> connection_;
  const uint64_t number_;
};

HttpRequest request_of(http::request<http::string_body>&& parsed) {
  HttpRequest request;
  request.method = std::string(parsed.method_string());
  const std::string target(parsed.target());
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string::npos) request.query = target.substr(question + 1);
  for (const auto& field : parsed) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  request.body = std::move(parsed.body());
  return request;
}

}  // namespace

HttpConnection::HttpConnection(Protocol::socket socket, std::shared_ptr<HttpShared> shared)
    : shared_(std::move(shared)), socket_(std::move(socket)), timer_(shared_->io) {
  ++shared_->counters.open;
}

HttpConnection::~HttpConnection() { --shared_->counters.open; }

void HttpConnection::start() {
  expire_after(shared_->options.limits.header_timeout);
  read_first_byte();
}

void HttpConnection::refuse(int status, const std::string& message) {
  manner_.keep_alive = false;
  state_ = State::kResponding;
  send(exchange_, shared_->refusal(status, message));
}

void HttpConnection::drain() {
  manner_.keep_alive = false;
  if (state_ == State::kIdle) close();
}

std::optional<std::chrono::steady_clock::time_point> HttpConnection::without_request_since() const {
  const bool waits = state_ == State::kIdle || state_ == State::kReading;
  return waits ? std::optional(without_request_since_) : std::nullopt;
}

void HttpConnection::expire_after(std::chrono::milliseconds time) {
  timed_out_ = false;
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this()](const ErrorCode& error) {
    if (error || self->timer_.expiry() > asio::steady_timer::clock_type::now()) return;
    self->timed_out_ = true;
    ErrorCode ignored;
    self->socket_.cancel(ignored);
  });
}

void HttpConnection::expire_never() {
  timed_out_ = false;
  timer_.cancel();
}

// --- reading ---

void HttpConnection::read_first_byte() {
  state_ = State::kIdle;
  without_request_since_ = std::chrono::steady_clock::now();
  if (buffer_.size() > 0) return read_header();
  const auto& limits = shared_->options.limits;
  socket_.async_read_some(buffer_.prepare(limits.header_bytes),
                          [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                            if (error || bytes == 0) return self->close();
                            self->buffer_.commit(bytes);
                            self->read_header();
                          });
}

void HttpConnection::read_header() {
  const auto& limits = shared_->options.limits;
  state_ = State::kReading;
  parser_.emplace();
  manner_.origin.clear();
  parser_->header_limit(static_cast<uint32_t>(limits.header_bytes));
  parser_->body_limit(limits.body_bytes);
  expire_after(limits.header_timeout);
  http::async_read_header(
      socket_, buffer_, *parser_, [self = shared_from_this()](const ErrorCode& error, size_t) {
        if (error) return self->fail_reading(error);
        const auto& header = self->parser_->get();
        self->manner_.keep_alive = header.keep_alive() && !self->shared_->draining;
        self->manner_.head_only = header.method() == http::verb::head;
        self->manner_.old_version = header.version() < 11;
        if (const auto refused = self->complaint()) {
          ++self->shared_->counters.bad_requests;
          return self->refuse(refused->first, refused->second);
        }
        self->manner_.origin = std::string(header[http::field::origin]);
        if (self->is_preflight()) return self->answer_preflight();
        if (self->expects_continue() && !self->parser_->is_done()) {
          self->enqueue("HTTP/1.1 100 Continue\r\n\r\n");
        }
        self->read_body();
      });
}

bool HttpConnection::expects_continue() const {
  return equal_ignoring_case(std::string(parser_->get()[http::field::expect]), "100-continue");
}

std::optional<std::pair<int, std::string>> HttpConnection::complaint() const {
  const auto& header = parser_->get();
  if (header.version() != 10 && header.version() != 11) {
    return std::pair(505, std::string("unsupported HTTP version; allowed: 1.0 and 1.1"));
  }
  const bool sized = header.find(http::field::content_length) != header.end();
  if (sized && header.find(http::field::transfer_encoding) != header.end()) {
    return std::pair(
        400, std::string("both Content-Length and Transfer-Encoding are given; send one of them"));
  }
  if (header.find(http::field::expect) != header.end() && !expects_continue()) {
    return std::pair(417, std::string("unsupported Expect header; allowed: 100-continue"));
  }
  if (const auto refused = origin_complaint()) return refused;
  if (shared_->any_host) return std::nullopt;
  const std::string host(header[http::field::host]);
  if (host.empty() && manner_.old_version) return std::nullopt;
  if (is_allowed_host(host, shared_->options)) return std::nullopt;
  return std::pair(
      421, fmt::format("Host \"{}\" is not a name of this server; add it with --allowed-host",
                       host.substr(0, 80)));
}

std::optional<std::pair<int, std::string>> HttpConnection::origin_complaint() const {
  const auto& header = parser_->get();
  const std::string_view host = header[http::field::host];
  const auto [begin, end] = header.equal_range(http::field::origin);
  for (auto field = begin; field != end; ++field) {
    const std::string_view origin = field->value();
    if (std::next(begin) == end && is_allowed_origin(origin, host, shared_->options)) continue;
    return std::pair(403,
                     fmt::format("Origin \"{}\" is not this server; allow it with --allowed-origin",
                                 origin.substr(0, 80)));
  }
  return std::nullopt;
}

// A CORS preflight: browsers send it before a cross-origin request with a key or with JSON.
bool HttpConnection::is_preflight() const {
  const auto& header = parser_->get();
  return header.method() == http::verb::options && !manner_.origin.empty() &&
         header.find(http::field::access_control_request_method) != header.end();
}

void HttpConnection::answer_preflight() {
  constexpr const char* kSeconds = "600";  // how long the browser caches the preflight
  const auto& header = parser_->get();
  HttpResponse response{.status = 204,
                        .headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                                    {"Access-Control-Max-Age", kSeconds}}};
  const std::string headers(header[http::field::access_control_request_headers]);
  if (!headers.empty()) response.headers.emplace_back("Access-Control-Allow-Headers", headers);
  if (header.find("Access-Control-Request-Private-Network") != header.end()) {
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  if (!parser_->is_done()) manner_.keep_alive = false;  // the refused request's body is left unread
  state_ = State::kResponding;
  ++exchange_;
  begun_ = finished_ = false;
  gone_ = nullptr;
  parser_.reset();
  send(exchange_, std::move(response));
}

void HttpConnection::read_body() {
  if (parser_->is_done()) return handle();
  expire_after(shared_->options.limits.body_timeout);
  http::async_read_some(socket_, buffer_, *parser_,
                        [self = shared_from_this()](const ErrorCode& error, size_t) {
                          if (error) return self->fail_reading(error);
                          self->read_body();
                        });
}

void HttpConnection::fail_reading(const ErrorCode& error) {
  const auto& limits = shared_->options.limits;
  manner_.old_version = false;
  manner_.head_only = false;
  if (timed_out_) {
    ++shared_->counters.timeouts;
    return refuse(408, "the request did not arrive in time");
  }
  if (error == http::error::end_of_stream || error == asio::error::operation_aborted ||
      error == asio::error::connection_reset || error == http::error::partial_message) {
    return close();
  }
  ++shared_->counters.bad_requests;
  if (error == http::error::body_limit) {
    return refuse(
        413, fmt::format("the body exceeds {} bytes, the limit of this server", limits.body_bytes));
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return refuse(431, fmt::format("the header exceeds {} bytes, the limit of this server",
                                   limits.header_bytes));
  }
  refuse(400, fmt::format("not a valid HTTP request: {}", error.message()));
}

void HttpConnection::handle() {
  state_ = State::kResponding;
  ++exchange_;
  begun_ = finished_ = false;
  gone_ = nullptr;
  expire_never();
  auto exchange = std::make_shared<Exchange>(shared_from_this(), exchange_);
  HttpRequest request = request_of(parser_->release());
  parser_.reset();
  watch_client();
  shared_->handler(std::move(request), std::move(exchange));
}

// While a request is answered, a disconnect is detected as end of stream. If the client has already
// sent its next request, only a failing write detects it.
void HttpConnection::watch_client() {
  if (watching_) return;
  watching_ = true;
  socket_.async_wait(
      Protocol::socket::wait_read, [self = shared_from_this()](const ErrorCode& error) {
        self->watching_ = false;
        if (self->state_ != State::kResponding || self->finished_) return;
        if (error == asio::error::operation_aborted) return self->watch_client();
        if (error) return self->close();
        char byte = 0;
        const auto got = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return self->close();
        if (got < 0) self->watch_client();
      });
}

// --- answering ---

void HttpConnection::write_head(const HttpResponse& head, std::optional<size_t> length) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", head.status, reason_phrase(head.status));
  for (const auto& [name, value] : head.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (head.status != 204) text += fmt::format("Content-Type: {}\r\n", head.content_type);
  if (length) {
    if (head.status != 204) text += fmt::format("Content-Length: {}\r\n", *length);
    manner_.body = manner_.head_only || head.status == 204 ? Body::kNone : Body::kSized;
  } else if (manner_.old_version) {
    manner_.keep_alive = false;
    manner_.body = manner_.head_only ? Body::kNone : Body::kUntilClose;
  } else {
    text += "Transfer-Encoding: chunked\r\n";
    manner_.body = manner_.head_only ? Body::kNone : Body::kChunked;
  }
  if (!manner_.origin.empty()) {
    text += fmt::format("Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n", manner_.origin);
  }
  text += "X-Content-Type-Options: nosniff\r\n";
  text += manner_.keep_alive ? (manner_.old_version ? "Connection: keep-alive\r\n" : "")
                             : "Connection: close\r\n";
  text += "\r\n";
  begun_ = true;
  enqueue(text);
}

void HttpConnection::send(uint64_t exchange, HttpResponse response) {
  if (!answers(exchange) || begun_) return;
  if (shared_->draining) manner_.keep_alive = false;
  write_head(response, response.body.size());
  if (manner_.body != Body::kNone) enqueue(response.body);
  finish_response();
}

void HttpConnection::begin(uint64_t exchange, const HttpResponse& head) {
  if (!answers(exchange) || begun_) return;
  if (shared_->draining) manner_.keep_alive = false;
  write_head(head, std::nullopt);
}

void HttpConnection::write(uint64_t exchange, const std::string& piece) {
  if (!answers(exchange) || !begun_ || piece.empty()) return;
  if (manner_.body == Body::kChunked) {
    enqueue(fmt::format("{:x}\r\n{}\r\n", piece.size(), piece));
  } else if (manner_.body == Body::kUntilClose) {
    enqueue(piece);
  }
}

void HttpConnection::end(uint64_t exchange) {
  if (!answers(exchange) || !begun_) return;
  if (manner_.body == Body::kChunked) enqueue("0\r\n\r\n");
  finish_response();
}

void HttpConnection::watch(uint64_t exchange, std::function<void()> gone) {
  if (exchange != exchange_) return;
  if (state_ == State::kClosing) return gone();
  if (answers(exchange)) gone_ = std::move(gone);
}

void HttpConnection::abandon(uint64_t exchange) {
  if (!answers(exchange) || finished_) return;
  if (begun_) return close();  // a truncated response must not look complete
  manner_.keep_alive = false;
  send(exchange, shared_->refusal(500, "the request was aborted; see the server's log"));
}

void HttpConnection::finish_response() {
  finished_ = true;
  gone_ = nullptr;
  if (!output_.writing) after_flush();
}

void HttpConnection::enqueue(std::string_view bytes) {
  if (state_ == State::kClosing) return;
  output_.pending += bytes;
  if (output_.pending.size() + output_.sending.size() - output_.sent >
      shared_->options.limits.backlog_bytes + shared_->options.limits.header_bytes) {
    // The backlog limit applies to streamed pieces only: a whole response may be larger.
    if (manner_.body == Body::kChunked || manner_.body == Body::kUntilClose) return close();
  }
  if (!output_.writing) flush();
}

void HttpConnection::flush() {
  if (output_.sent == output_.sending.size()) {
    output_.sending.clear();
    output_.sent = 0;
    std::swap(output_.sending, output_.pending);
  }
  if (output_.sending.empty()) {
    output_.writing = false;
    return after_flush();
  }
  output_.writing = true;
  expire_after(shared_->options.limits.write_timeout);
  socket_.async_write_some(
      asio::buffer(output_.sending.data() + output_.sent, output_.sending.size() - output_.sent),
      [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
        if (error) {
          self->output_.writing = false;
          if (self->timed_out_) ++self->shared_->counters.timeouts;
          return self->close();
        }
        self->output_.sent += bytes;
        self->flush();
      });
}

void HttpConnection::after_flush() {
  if (state_ == State::kReading || state_ == State::kClosing) return;
  expire_never();
  if (!finished_) return;
  if (!manner_.keep_alive || shared_->draining) return linger();
  if (watching_) socket_.cancel();
  expire_after(shared_->options.limits.idle_timeout);
  read_first_byte();
}

// The response is sent. Input is read and discarded for a moment before closing: closing with
// unread input sends a reset, which could discard the response at the client.
void HttpConnection::linger() {
  if (state_ != State::kClosing) {
    state_ = State::kClosing;
    ErrorCode ignored;
    socket_.shutdown(Protocol::socket::shutdown_send, ignored);
    expire_after(kLinger);
  }
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(size_t{64} << 10),
                          [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                            if (error || bytes == 0) return self->close();
                            self->linger();
                          });
}

void HttpConnection::close() {
  state_ = State::kClosing;
  ErrorCode ignored;
  timer_.cancel();
  socket_.close(ignored);
  if (const auto gone = std::exchange(gone_, nullptr)) gone();
}

}  // namespace fasa::serve
