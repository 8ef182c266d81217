// How a server ends: with whatever its handlers still hold.
#include "bindings/http/http_server.h"

#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>

namespace fasa::serve {
namespace {

namespace asio = boost::asio;
using ExchangePtr = std::shared_ptr<HttpExchange>;

class Client {
 public:
  explicit Client(int port) {
    socket_.connect({asio::ip::address_v4::loopback(), static_cast<uint16_t>(port)});
    asio::write(socket_, asio::buffer(std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")));
  }
  std::string read_to_end_and_close() {
    std::string text;
    boost::system::error_code error;
    asio::read(socket_, asio::dynamic_buffer(text), error);
    socket_.close();
    return text;
  }

 private:
  asio::io_context io_;
  asio::ip::tcp::socket socket_{io_};
};

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest()
      : server_(std::make_unique<HttpServer>(
            HttpOptions{.port = 0},
            [this](const HttpRequest&, ExchangePtr exchange) {
              asked_.set_value(std::move(exchange));
            },
            [](int status, const std::string& why) {
              return HttpResponse{.status = status, .body = why};
            })) {}

  std::promise<ExchangePtr> asked_;
  std::unique_ptr<HttpServer> server_;
};

// The answer is out, the server ends, and only then whoever answered lets go.
TEST_F(HttpServerTest, IsIdleThoughAnExchangeOutlivesItsConnection) {
  Client client(server_->port());
  ExchangePtr exchange = asked_.get_future().get();
  exchange->send({.status = 200, .body = "said"});
  server_->drain();
  EXPECT_TRUE(client.read_to_end_and_close().ends_with("said"));
  EXPECT_FALSE(server_->wait_idle(std::chrono::milliseconds(100)));  // the exchange holds it
  exchange.reset();
  EXPECT_TRUE(server_->wait_idle(std::chrono::seconds(10)));
}

TEST_F(HttpServerTest, AnExchangeMayOutliveTheServer) {
  Client client(server_->port());
  ExchangePtr exchange = asked_.get_future().get();
  bool gone = false;
  exchange->on_gone([&gone] { gone = true; });
  exchange->begin({.status = 200});
  server_.reset();
  EXPECT_TRUE(gone);
  exchange->write("to nobody");
  exchange->end();
  EXPECT_FALSE(client.read_to_end_and_close().ends_with("0\r\n\r\n"));
}

}  // namespace
}  // namespace fasa::serve
