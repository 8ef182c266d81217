// Which requests the server accepts, which connections it closes to make room, and how it shuts
// down.
#include "bindings/http/server/http_server.h"

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
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace fasa::serve {
namespace {

namespace asio = boost::asio;
using ExchangePtr = std::shared_ptr<HttpExchange>;

class Client {
 public:
  explicit Client(int port) {
    socket_.connect({asio::ip::address_v4::loopback(), static_cast<uint16_t>(port)});
  }
  Client& send(const std::string& text) {
    asio::write(socket_, asio::buffer(text));
    return *this;
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

const std::string kGet = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

HttpResponse plain_refusal(int status, const std::string& why) {
  return {.status = status, .body = why};
}

// Answers every request at once with "taken".
std::unique_ptr<HttpServer> taking_server(HttpOptions options) {
  options.port = 0;
  return std::make_unique<HttpServer>(
      options,
      [](const HttpRequest&, const ExchangePtr& exchange) { exchange->send({.body = "taken"}); },
      plain_refusal);
}

// Sends a request with these header lines ("Name: value\r\n" each) and returns the whole response.
std::string ask(int port, const std::string& line, const std::string& headers) {
  Client client(port);
  client.send(line + " HTTP/1.1\r\n" + headers + "Connection: close\r\n\r\n");
  return client.read_to_end_and_close();
}

// --- origins ---

constexpr const char* kHost = "Host: localhost:8080\r\n";
constexpr const char* kTaken = "HTTP/1.1 200";
constexpr const char* kForbidden = "HTTP/1.1 403";

std::string with_origin(const std::string& origin, const char* host = kHost) {
  return std::string(host) + "Origin: " + origin + "\r\n";
}

TEST(OriginTest, ForeignOriginsAreRefused) {
  const auto server = taking_server({});
  const std::string post = "POST /v1/completions";
  for (const char* foreign :
       {"http://evil.example", "null", "http://localhost", "http://localhost:8081",
        "http://127.0.0.1:8080", "http://localhost:8080.evil.example", "localhost:8080", "",
        "http://localhost:8080/", "http://user@localhost:8080", "http://localhost:8080 http://b"}) {
    const std::string response = ask(server->port(), post, with_origin(foreign));
    EXPECT_TRUE(response.starts_with(kForbidden)) << foreign << ": " << response;
    EXPECT_EQ(response.find("Access-Control"), std::string::npos);
  }
  const std::string two = with_origin("http://localhost:8080") + "Origin: http://evil.example\r\n";
  EXPECT_TRUE(ask(server->port(), post, two).starts_with(kForbidden));
  const std::string preflight =
      with_origin("http://evil.example") + "Access-Control-Request-Method: POST\r\n";
  EXPECT_TRUE(ask(server->port(), "OPTIONS /v1/completions", preflight).starts_with(kForbidden));
}

TEST(OriginTest, TheServersOwnIsTakenAndNoneToo) {
  const auto server = taking_server({});
  for (const char* own :
       {"http://localhost:8080", "https://localhost:8080", "http://LOCALHOST:8080"}) {
    EXPECT_TRUE(ask(server->port(), "POST /", with_origin(own)).starts_with(kTaken)) << own;
  }
  // The scheme's default port may be omitted on either side.
  const auto taken = [&](const char* origin, const char* host) {
    return ask(server->port(), "POST /", with_origin(origin, host)).starts_with(kTaken);
  };
  EXPECT_TRUE(taken("https://localhost", "Host: localhost\r\n"));
  EXPECT_TRUE(taken("http://localhost", "Host: localhost:80\r\n"));
  EXPECT_TRUE(taken("https://localhost:443", "Host: localhost\r\n"));
  EXPECT_FALSE(taken("https://localhost", "Host: localhost:80\r\n"));
  EXPECT_TRUE(taken("http://[::1]:80", "Host: [::1]\r\n"));
  EXPECT_FALSE(taken("http://[::1]:81", "Host: [::1]\r\n"));
  EXPECT_TRUE(ask(server->port(), "POST /", kHost).starts_with(kTaken));
  EXPECT_TRUE(ask(server->port(), "OPTIONS /", kHost).starts_with(kTaken));  // the handler's answer
}

TEST(OriginTest, AllowedOriginsAreTakenAndPreflightsAnswered) {
  const auto server =
      taking_server({.allowed_origins = {"https://app.example", "http://other.example:3000"}});
  const std::string origin = with_origin("https://app.example");
  const std::string response = ask(server->port(), "POST /", origin);
  EXPECT_TRUE(response.starts_with(kTaken)) << response;
  EXPECT_NE(response.find("Access-Control-Allow-Origin: https://app.example\r\n"),
            std::string::npos);
  EXPECT_NE(response.find("Vary: Origin\r\n"), std::string::npos);
  const std::string preflight =
      ask(server->port(), "OPTIONS /v1/chat/completions",
          origin +
              "Access-Control-Request-Method: POST\r\n"
              "Access-Control-Request-Headers: authorization, x-stainless-os\r\n");
  EXPECT_TRUE(preflight.starts_with("HTTP/1.1 204")) << preflight;
  for (const char* line : {"Access-Control-Allow-Origin: https://app.example\r\n",
                           "Access-Control-Allow-Methods: GET, POST, DELETE\r\n",
                           "Access-Control-Allow-Headers: authorization, x-stainless-os\r\n"}) {
    EXPECT_NE(preflight.find(line), std::string::npos) << line;
  }
  for (const char* foreign : {"http://app.example", "https://app.example:8443",
                              "http://other.example", "https://sub.app.example"}) {
    EXPECT_TRUE(ask(server->port(), "POST /", with_origin(foreign)).starts_with(kForbidden));
  }
}

TEST(OriginTest, WhatIsNoOriginIsNotAllowed) {
  for (const char* text : {"*", "null", "app.example", "https://", "https://app.example/",
                           "https://app.example:port", "https://app.example:70000"}) {
    EXPECT_THROW(taking_server({.allowed_origins = {text}}), UsageError) << text;
  }
}

// --- when all connections are taken ---

const std::string kHalf = "GET / HTTP/1.1\r\nHost: local";
const std::string kOtherHalf = "host\r\nConnection: close\r\n\r\n";

void wait_for_connections(const HttpServer& server, uint64_t count) {
  while (server.counters().connections < count) std::this_thread::yield();
}

TEST(CrowdTest, TheOldestWithoutARequestGivesWay) {
  constexpr int kConnections = 4;
  const auto server = taking_server({.limits = {.connections = kConnections}});
  std::vector<std::unique_ptr<Client>> halves;
  for (int i = 0; i < kConnections; ++i) {
    halves.push_back(std::make_unique<Client>(server->port()));
    halves.back()->send(kHalf);
    wait_for_connections(*server, static_cast<uint64_t>(i) + 1);
  }
  const std::string response = ask(server->port(), "GET /", kHost);
  EXPECT_TRUE(response.starts_with(kTaken)) << response;
  EXPECT_EQ(halves[0]->read_to_end_and_close(), "");  // closed
  for (int i = 1; i < kConnections; ++i) {
    halves[i]->send(kOtherHalf);
    EXPECT_TRUE(halves[i]->read_to_end_and_close().starts_with(kTaken)) << i;
  }
  EXPECT_EQ(server->counters().refused_connections, 1U);
}

TEST(CrowdTest, NoOneGivesWayWhileAllHaveARequest) {
  std::promise<ExchangePtr> asked;
  HttpServer server(
      {.port = 0, .limits = {.connections = 1}},
      [&](const HttpRequest&, ExchangePtr exchange) { asked.set_value(std::move(exchange)); },
      plain_refusal);
  Client first(server.port());
  first.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const ExchangePtr exchange = asked.get_future().get();
  EXPECT_TRUE(ask(server.port(), "GET /", kHost).starts_with("HTTP/1.1 503"));
  exchange->send({.body = "taken"});
  EXPECT_TRUE(first.read_to_end_and_close().starts_with(kTaken));
}

// --- the end ---

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest()
      : server_(std::make_unique<HttpServer>(
            HttpOptions{.port = 0},
            [this](const HttpRequest&, ExchangePtr exchange) {
              asked_.set_value(std::move(exchange));
            },
            plain_refusal)) {}

  std::promise<ExchangePtr> asked_;
  std::unique_ptr<HttpServer> server_;
};

// The response is sent and the server shuts down before the handler releases the exchange.
TEST_F(HttpServerTest, IsIdleThoughAnExchangeOutlivesItsConnection) {
  Client client(server_->port());
  client.send(kGet);
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
  client.send(kGet);
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
