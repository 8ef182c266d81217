// Conversations of a model with windows in some layers: rows behind the windows are freed, are not
// saved to disk, and are computed again if a request goes back behind them.
#include <gtest/gtest.h>

#include <thread>

#include "tests/llm/temp_model.h"
#include "tests/serve/local_server.h"

namespace fasa::serve {
namespace {

constexpr int kWindow = 50;
constexpr size_t kLong =
    3600;  // far beyond the window, kConversationRollback and the pages that wait

class WindowSessionsTest : public ::testing::TestWithParam<const char*> {
 protected:
  LocalServer open(const EngineOptions& options) const {
    return {LocalServer::open(GetParam(), {}), options, {.window = kWindow, .whole = 1}};
  }
  EngineOptions suspension() const {
    return {.prefill_chunk = 100,
            .sessions = SuspensionOptions{.dir = folder_.path() + "/sessions", .fingerprint = "a"}};
  }

 private:
  llm_test::TempDir folder_;
};

void suspend(LocalServer& server) {
  server.loop().suspend_idle_now();
  while (server.loop().status().suspension.busy) std::this_thread::yield();
}

struct Answer {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;
  int64_t cached = 0;
};

// `user`: see GenerationRequest::user_tokens.
Answer ask(LocalServer& server, const std::vector<int32_t>& prompt, int64_t user = 0) {
  const auto recorder = server.start(prompt, 12, "", 1, {}, 0, user);
  const auto& choice = recorder->wait();
  return {choice.ids, choice.logprobs, recorder->cached()};
}

void expect_same(const Answer& answer, const Answer& expected, int64_t cached) {
  EXPECT_EQ(answer.ids, expected.ids);
  EXPECT_EQ(answer.logprobs, expected.logprobs);
  EXPECT_EQ(answer.cached, cached);
}

// A document, a question about its end, and questions about its first tokens.
struct Prompts {
  std::vector<int32_t> document = bytes_of(some_text(0, kLong));
  std::vector<int32_t> question = {};
  Answer to_document, to_question;

  explicit Prompts(LocalServer& fresh) {
    to_document = ask(fresh, document);
    question = document;
    question.insert(question.end(), to_document.ids.begin(), to_document.ids.end());
    const auto more = bytes_of(some_text(9000, 40));
    question.insert(question.end(), more.begin(), more.end());
    to_question = ask(fresh, question);
  }
  std::vector<int32_t> beginning(size_t tokens) const {
    return {document.begin(), document.begin() + static_cast<int64_t>(tokens)};
  }
  // The computed tokens of the document and its answer: all but the last.
  int64_t computed() const { return static_cast<int64_t>(kLong + to_document.ids.size()) - 1; }
};

TEST_P(WindowSessionsTest, TokensBehindTheRollbackWindowAreRecomputed) {
  LocalServer fresh = open({.prefill_chunk = 100});
  const Prompts prompts(fresh);
  LocalServer server = open({.prefill_chunk = 100});
  expect_same(ask(server, prompts.document), prompts.to_document, 0);
  expect_same(ask(server, prompts.question), prompts.to_question, prompts.computed());
  for (const size_t tokens : {size_t{500}, kLong - 1000}) {
    LocalServer other = open({.prefill_chunk = 100});
    const auto beginning = prompts.beginning(tokens);
    const auto kept = static_cast<int64_t>(tokens) - 1;
    expect_same(ask(server, beginning), ask(other, beginning), tokens == 500 ? 0 : kept);
  }
}

TEST_P(WindowSessionsTest, AResumedConversationIsTheSame) {
  LocalServer fresh = open({.prefill_chunk = 100});
  const Prompts prompts(fresh);
  {
    LocalServer server = open(suspension());
    expect_same(ask(server, prompts.document), prompts.to_document, 0);
    suspend(server);
    EXPECT_EQ(server.loop().status().memory.device_rows, 0u);
  }
  LocalServer server = open(suspension());
  expect_same(ask(server, prompts.question), prompts.to_question, prompts.computed());
  suspend(server);
  // The prompt was prefilled in chunks: the conversation keeps what truncation needs.
  LocalServer other = open({.prefill_chunk = 100});
  const auto goes_on = [&](size_t tokens, int64_t cached) {
    SCOPED_TRACE(tokens);
    const auto beginning = prompts.beginning(tokens);
    expect_same(ask(server, beginning), ask(other, beginning), cached);
    suspend(server);
  };
  goes_on(kLong - 1000, kLong - 1001);
  goes_on(kLong - 2500, 0);
  goes_on(500, 499);
}

// A turn of several requests whose tokens are more than the rollback window, and others that go on
// where the user's message ended: the reasoning of the turn is dropped, or it is said again.
TEST_P(WindowSessionsTest, TheEndOfTheUsersMessageIsHeld) {
  constexpr int64_t kMessage = 700;
  const auto text = bytes_of(some_text(0, kLong));
  const std::vector<int32_t> first(text.begin(), text.begin() + kMessage + 5);
  std::vector<int32_t> other(text.begin(), text.begin() + kMessage);
  const auto more = bytes_of(some_text(9000, 40));
  other.insert(other.end(), more.begin(), more.end());
  LocalServer fresh = open({.prefill_chunk = 100});
  const Answer to_first = ask(fresh, first), to_text = ask(fresh, text);
  const Answer to_other = ask(fresh, other);
  std::vector<int32_t> known = first;
  known.insert(known.end(), to_first.ids.begin(), to_first.ids.end() - 1);
  const int64_t same =
      std::mismatch(known.begin(), known.end(), text.begin()).first - known.begin();

  LocalServer server = open({.prefill_chunk = 100});
  expect_same(ask(server, first, kMessage), to_first, 0);
  expect_same(ask(server, text, kMessage), to_text, same);
  expect_same(ask(server, other, kMessage + 30), to_other, kMessage);
  expect_same(ask(server, text, kMessage), to_text, static_cast<int64_t>(kLong) - 1);
  {
    LocalServer goes = open(suspension());
    expect_same(ask(goes, first, kMessage), to_first, 0);
    suspend(goes);
    expect_same(ask(goes, text, kMessage), to_text, same);
    suspend(goes);
  }
  LocalServer back = open(suspension());
  expect_same(ask(back, other, kMessage + 30), to_other, kMessage);
}

INSTANTIATE_TEST_SUITE_P(Devices, WindowSessionsTest, ::testing::Values("cpu", "emulated"));

}  // namespace
}  // namespace fasa::serve
