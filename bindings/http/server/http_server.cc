#include "bindings/http/server/http_server.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <list>
#include <thread>
#include <utility>

#include "bindings/http/server/http_connection.h"
#include "bindings/http/server/origins.h"
#include "runtime/base/error.h"

namespace fasa::serve {
namespace {

namespace asio = boost::asio;
using Protocol = HttpConnection::Protocol;
using ErrorCode = boost::system::error_code;
constexpr std::string_view kUnix = "unix:";
constexpr std::chrono::milliseconds kAcceptPause{100};  // without free file descriptors

[[noreturn]] void refuse_address(const HttpOptions& options, const std::string& why) {
  throw UsageError(
      fmt::format("--host {} --port {}: {}; allowed: an address of this machine and a "
                  "free port (0 takes any), or unix:PATH",
                  options.host, options.port, why));
}

// Removes a socket file left by an earlier server, but not one that a process listens on.
void remove_stale_socket(asio::io_context& io, const std::string& path,
                         const HttpOptions& options) {
  if (!std::filesystem::is_socket(path)) return;
  asio::local::stream_protocol::socket probe(io);
  ErrorCode error;
  probe.connect(asio::local::stream_protocol::endpoint(path), error);
  if (!error) refuse_address(options, "another server is listening there");
  std::filesystem::remove(path);
}

asio::ip::tcp::endpoint tcp_endpoint(asio::io_context& io, const HttpOptions& options) {
  if (options.port < 0 || options.port > 65535)
    refuse_address(options, "the port must be 0 to 65535");
  asio::ip::tcp::resolver resolver(io);
  ErrorCode error;
  const auto found = resolver.resolve(options.host == "localhost" ? "127.0.0.1" : options.host,
                                      std::to_string(options.port), error);
  if (error || found.empty()) refuse_address(options, error.message());
  return found.begin()->endpoint();
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, Handler handler, Refusal refusal)
      : shared_(std::make_shared<HttpShared>(options)),
        acceptor_(shared_->io),
        pause_(shared_->io) {
    shared_->handler = std::move(handler);
    shared_->refusal = std::move(refusal);
    check_allowed_origins(options);
    listen();
    accept();
    thread_ = std::thread([io = &shared_->io] { io->run(); });
  }
  ~Impl() {
    shared_->post([this] {
      stop_accepting();
      for (auto& connection : connections_) {
        if (const auto open = connection.lock()) open->close();
      }
    });
    shared_->end();
    thread_.join();
    if (!unix_path_.empty()) std::filesystem::remove(unix_path_);
  }

  int port() const { return port_; }
  const std::string& address() const { return address_; }
  const HttpCounters& counters() const { return shared_->counters; }

  void drain() {
    shared_->post([this] {
      shared_->draining = true;
      stop_accepting();
      for (auto& connection : connections_) {
        if (const auto open = connection.lock()) open->drain();
      }
    });
  }

 private:
  void listen() {
    const HttpOptions& options = shared_->options;
    ErrorCode error;
    Protocol::endpoint endpoint;
    if (options.host.starts_with(kUnix)) {
      unix_path_ = options.host.substr(kUnix.size());
      if (unix_path_.empty() || unix_path_.size() > 100) {
        const std::string path = std::exchange(unix_path_, "");
        refuse_address(options, "the path of a socket must have 1 to 100 characters");
      }
      remove_stale_socket(shared_->io, unix_path_, options);
      endpoint = asio::local::stream_protocol::endpoint(unix_path_);
      acceptor_.open(asio::local::stream_protocol(), error);
      shared_->any_host = true;
    } else {
      const auto tcp = tcp_endpoint(shared_->io, options);
      endpoint = tcp;
      acceptor_.open(tcp.protocol(), error);
      if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    }
    if (!error) acceptor_.bind(endpoint, error);
    if (!error && !unix_path_.empty()) ::chmod(unix_path_.c_str(), S_IRUSR | S_IWUSR);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      unix_path_.clear();  // another process owns the socket file
      refuse_address(options, error.message());
    }
    note_address();
  }

  void note_address() {
    if (!unix_path_.empty()) {
      address_ = shared_->options.host;
      return;
    }
    asio::ip::tcp::endpoint bound;
    const auto generic = acceptor_.local_endpoint();
    bound.resize(generic.size());
    std::memcpy(bound.data(), generic.data(), generic.size());
    port_ = bound.port();
    const bool wide = bound.address().is_v6();
    address_ = fmt::format("http://{}{}{}:{}", wide ? "[" : "", bound.address().to_string(),
                           wide ? "]" : "", port_);
  }

  void accept() {
    acceptor_.async_accept([this](const ErrorCode& error, Protocol::socket socket) {
      if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
      if (error) {
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](const ErrorCode& stopped) {
          if (!stopped) accept();
        });
        return;
      }
      ++shared_->counters.connections;
      connections_.remove_if([](const auto& connection) { return connection.expired(); });
      const bool full =
          shared_->counters.open >= static_cast<uint64_t>(shared_->options.limits.connections) &&
          !close_oldest_without_request();
      const auto connection = std::make_shared<HttpConnection>(std::move(socket), shared_);
      connections_.push_back(connection);
      if (full) {
        ++shared_->counters.refused_connections;
        connection->refuse(503, "this server has no free connection; try again later");
      } else {
        connection->start();
      }
      accept();
    });
  }

  // Closes an idle connection to admit a new one. False: all connections have a request.
  bool close_oldest_without_request() {
    std::shared_ptr<HttpConnection> oldest;
    for (const auto& connection : connections_) {
      auto open = connection.lock();
      if (open == nullptr || !open->without_request_since()) continue;
      const bool older =
          oldest == nullptr || open->without_request_since() < oldest->without_request_since();
      if (older) oldest = std::move(open);
    }
    if (oldest == nullptr) return false;
    ++shared_->counters.refused_connections;
    oldest->close();
    return true;
  }

  void stop_accepting() {
    ErrorCode ignored;
    acceptor_.close(ignored);
    pause_.cancel();
  }

  const std::shared_ptr<HttpShared> shared_;
  asio::basic_socket_acceptor<Protocol> acceptor_;
  asio::steady_timer pause_;
  std::list<std::weak_ptr<HttpConnection>> connections_;  // accessed on the server's thread only
  std::string unix_path_;                                 // removed on shutdown, unless empty
  std::string address_;
  int port_ = 0;
  std::thread thread_;
};

HttpServer::HttpServer(const HttpOptions& options, Handler handler, Refusal refusal)
    : impl_(std::make_unique<Impl>(options, std::move(handler), std::move(refusal))) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const { return impl_->port(); }
std::string HttpServer::address() const { return impl_->address(); }
const HttpCounters& HttpServer::counters() const { return impl_->counters(); }
void HttpServer::drain() { impl_->drain(); }

bool HttpServer::wait_idle(std::chrono::milliseconds most) {
  const auto deadline = std::chrono::steady_clock::now() + most;
  while (counters().open > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace fasa::serve
