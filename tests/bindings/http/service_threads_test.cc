// The service's threads: requests are parsed in parallel, and answers are formatted outside the
// engine's thread.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/http/service.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "runtime/text/chat_template.h"
#include "tests/llm/llm_fixture.h"

namespace fasa::serve {
namespace {

using nlohmann::json;
constexpr std::chrono::seconds kSoon{120};  // also under the thread sanitizer

constexpr const char* kTemplate =
    R"({"chat_template": "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% endfor %})"
    R"({% if add_generation_prompt %}{{ strftime_now('%d') }}<assistant>{% endif %}"})";

// Collects an answer; `hold` is called before each piece of a stream.
class Answered final : public HttpExchange {
 public:
  explicit Answered(std::function<void()> hold = {}) : hold_(std::move(hold)) {}

  void send(HttpResponse response) override {
    status_ = response.status;
    finish(std::move(response.body));
  }
  void begin(HttpResponse head) override { status_ = head.status; }
  void write(std::string piece) override {
    if (hold_) hold_();
    body_ += piece;
  }
  void end() override { finish(std::move(body_)); }
  void on_gone(std::function<void()>) override {}

  // nullopt: no body arrived in time.
  std::optional<std::string> body() {
    if (whole_.wait_for(kSoon) != std::future_status::ready) return std::nullopt;
    return whole_.get();
  }
  int status() const { return status_; }

 private:
  void finish(std::string body) { done_.set_value(std::move(body)); }

  const std::function<void()> hold_;
  std::atomic<int> status_{0};
  std::string body_;
  std::promise<std::string> done_;
  std::shared_future<std::string> whole_{done_.get_future().share()};
};

// Blocks the threads that reach it until it is opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++came_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_for_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return came_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int came_ = 0;
  bool open_ = false;
};

std::unique_ptr<Device> open_processor() {
  DeviceOptions options;
  options.name = "cpu";
  options.threads = 1;
  return open_device(options);
}

class ServiceThreadsTest : public ::testing::Test {
 protected:
  ServiceThreadsTest()
      : device_(open_processor()),
        model_(Model::load(llm_test::bundled_dir(), *device_, std::nullopt)),
        tokenizer_(open_tokenizer(llm_test::bundled_dir())),
        templates_(text::ChatTemplates::parse(kTemplate, "the test")),
        runtime_(*device_, Config(), model_.config().geometry(), model_.dtype(),
                 all_slice_dims(model_.config().geometry())),
        engine_(model_, runtime_, tokenizer_.get(), {.prefill_chunk = 64}),
        service_({.model_name = "m",
                  .max_context = 1024,
                  .vocab_size = model_.config().vocab_size,
                  .now =
                      [this] {
                        if (in_templates_) in_templates_();
                        return std::tm{};
                      }},
                 engine_, *tokenizer_, &*templates_) {}

  std::shared_ptr<Answered> ask(const std::string& path, const json& body,
                                std::function<void()> hold = {}) {
    auto answered = std::make_shared<Answered>(std::move(hold));
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = body.dump();
    service_.handle(std::move(request), answered);
    return answered;
  }
  static json chat(const std::string& words, int max_tokens = 3) {
    return {{"messages", {{{"role", "user"}, {"content", words}}}},
            {"max_tokens", max_tokens},
            {"temperature", 0}};
  }

  std::function<void()> in_templates_;
  std::unique_ptr<Device> device_;
  Model model_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplates> templates_;
  Runtime runtime_;
  EngineLoop engine_;
  Service service_;
};

TEST_F(ServiceThreadsTest, ASlowJobDelaysNoOther) {
  Gate gate;
  in_templates_ = [&] { gate.pass(); };
  const auto slow = ask("/v1/chat/completions", chat("slow"));
  gate.wait_for_one();
  const auto quick = ask("/tokenize", {{"content", "abc"}});
  EXPECT_EQ(quick->body(), R"({"tokens":[97,98,99]})");
  gate.open();
  EXPECT_TRUE(slow->body());
}

TEST_F(ServiceThreadsTest, WhatWaitsIsBounded) {
  Gate gate;
  in_templates_ = [&] { gate.pass(); };
  std::vector<std::shared_ptr<Answered>> all;
  constexpr int kMore = 100;  // more than may run and wait together
  for (int i = 0; i < kMore; ++i) all.push_back(ask("/v1/chat/completions", chat("x", 1)));
  EXPECT_EQ(all.back()->status(), 503);
  gate.open();
  for (const auto& one : all) EXPECT_TRUE(one->body());
  EXPECT_NE(all.front()->status(), 503);
}

// Schemas, templates and tokenizers are shared between jobs: each job gets the result it gets
// alone.
TEST_F(ServiceThreadsTest, WhatJobsShareGivesEachItsOwn) {
  struct Request {
    std::string path;
    json body;
  };
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    const std::string words = "turn " + std::to_string(i);
    json held = chat(words, 4);
    held["response_format"] = {
        {"type", "json_schema"},
        {"json_schema",
         {{"name", "n"},
          {"schema", {{"type", "integer"}, {"minimum", 0}, {"maximum", i % 3 == 0 ? 7 : 99}}}}}};
    requests.push_back({"/v1/chat/completions", std::move(held)});
    requests.push_back({"/v1/chat/completions", chat(words)});
    requests.push_back({"/tokenize", {{"content", words + " of a longer text, twice"}}});
    requests.push_back({"/detokenize", {{"tokens", {97, 98, 99 + i}}}});
  }
  // The body without its ids and times.
  const auto told = [](const std::optional<std::string>& body) {
    json read = json::parse(body.value_or("{}"));
    return read.contains("choices") ? read["choices"] : read;
  };
  std::vector<json> alone;
  for (const Request& one : requests) alone.push_back(told(ask(one.path, one.body)->body()));
  EXPECT_TRUE(alone[1][0].contains("message")) << alone[1];
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<Answered>> crowd;
    for (const Request& one : requests) crowd.push_back(ask(one.path, one.body));
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(told(crowd[i]->body()), alone[i]) << i;
  }
}

// The engine continues with other requests while one answer takes long to format.
TEST_F(ServiceThreadsTest, TheEngineWaitsForNoAnswersFormat) {
  Gate gate;
  json streamed = chat("held", 6);
  streamed["stream"] = true;
  streamed["logprobs"] = true;
  const auto held = ask("/v1/chat/completions", streamed, [&] { gate.pass(); });
  gate.wait_for_one();
  const auto other = ask("/v1/completions", {{"prompt", "In the beginning"}, {"max_tokens", 4}});
  EXPECT_TRUE(other->body());
  EXPECT_EQ(other->status(), 200);
  gate.open();
  const auto whole = held->body();
  ASSERT_TRUE(whole);
  EXPECT_TRUE(whole->ends_with("data: [DONE]\n\n"));
}

// The service is destroyed while answers are under way, some of them with pieces not yet formatted.
TEST_F(ServiceThreadsTest, AServiceMayEndAtAnyTime) {
  json streamed = chat("left", 400);
  streamed["stream"] = true;
  for (int i = 0; i < 4; ++i) ask("/v1/chat/completions", streamed);
  while (engine_.status().generated_tokens < 8) std::this_thread::yield();
}

}  // namespace
}  // namespace fasa::serve
