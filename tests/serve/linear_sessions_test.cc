// Conversations of models with linear attention: wherever a request goes back to, and whether the
// conversation stayed in memory, was evicted or lay on disk, its answer has the bits of one that
// was left alone.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/io/output_file.h"
#include "tests/llm/temp_model.h"
#include "tests/serve/local_server.h"

namespace fasa::serve {
namespace {

constexpr int kInterval = 64;

struct Case {
  const char* model;
  const char* device;
};

struct Answer {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;
  int64_t cached = 0;
};

class LinearSessionsTest : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<LocalServer> open(const EngineOptions& options) const {
    ServedModel model{.dir = llm_test::golden_dir(GetParam().model)};
    model.config.memory.snapshots.interval = kInterval;
    return std::make_unique<LocalServer>(LocalServer::open(GetParam().device, {}), options, model);
  }
  EngineOptions in_memory() const { return {.prefill_chunk = 24}; }
  EngineOptions on_disk() const {
    SuspensionOptions sessions{.dir = folder_.path() + "/sessions", .fingerprint = "a"};
    sessions.snapshots.interval = kInterval;
    return {.prefill_chunk = 24, .sessions = sessions};
  }
  void outlives_its_server();
  std::string file(const std::string& name) const { return folder_.path() + "/sessions/" + name; }

 private:
  llm_test::TempDir folder_;
};

void suspend(LocalServer& server) {
  server.loop().suspend_idle_now();
  while (server.loop().status().suspension.busy) std::this_thread::yield();
}

// `user`: see GenerationRequest::user_tokens.
Answer ask(LocalServer& server, const std::vector<int32_t>& prompt, int64_t tokens = 9,
           int64_t user = 0, const Sampling& sampling = {}) {
  const auto recorder = server.start(prompt, tokens, "", 1, sampling, 0, user);
  const auto& choice = recorder->wait();
  return {choice.ids, choice.logprobs, recorder->cached()};
}

void expect_same(const Answer& answer, const Answer& expected) {
  EXPECT_EQ(answer.ids, expected.ids);
  EXPECT_EQ(answer.logprobs, expected.logprobs);
}

// Ids of the models' small vocabulary.
std::vector<int32_t> some_ids(size_t begin, size_t count) {
  std::vector<int32_t> ids;
  for (const char c : some_text(begin, count)) ids.push_back(static_cast<unsigned char>(c) % 61);
  return ids;
}

std::vector<int32_t> joined(std::vector<int32_t> ids, const std::vector<int32_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

// A conversation of two turns, and where a third may begin: behind the last answer, within it,
// within the second question, within the first answer, within the first prompt.
struct Conversations {
  std::vector<int32_t> first = some_ids(0, 150);
  std::vector<int32_t> second = {};
  Answer to_first, to_second;
  std::vector<std::vector<int32_t>> next = {};

  explicit Conversations(LocalServer& server) {
    to_first = ask(server, first);
    const auto known = joined(first, to_first.ids);
    second = joined(known, some_ids(500, 20));
    to_second = ask(server, second, 12);
    const auto whole = joined(second, to_second.ids);
    const auto size = static_cast<ptrdiff_t>(whole.size());
    for (const ptrdiff_t kept : {size, size - 5, size - 20, ptrdiff_t{155}, ptrdiff_t{140}}) {
      next.push_back(joined({whole.begin(), whole.begin() + kept}, some_ids(900, 11)));
    }
  }
};

// Where a request goes back, the answers are those of a server that has nothing but the same turns
// in memory, and nothing was cut before.
std::vector<Answer> left_alone(const std::function<std::unique_ptr<LocalServer>()>& open) {
  std::vector<Answer> answers;
  for (size_t i = 0; i < 5; ++i) {
    const auto server = open();
    const Conversations turns(*server);
    answers.push_back(ask(*server, turns.next[i]));
  }
  return answers;
}

TEST_P(LinearSessionsTest, ACutIsComputedAsBefore) {
  const auto expected = left_alone([&] { return open(in_memory()); });
  const auto server = open(in_memory());
  const Conversations turns(*server);
  for (size_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    expect_same(ask(*server, turns.next[i]), expected[i]);
    server->loop().evict_idle();  // only the record is left
    expect_same(ask(*server, turns.next[i]), expected[i]);
  }
}

void LinearSessionsTest::outlives_its_server() {
  const auto expected = left_alone([&] { return open(in_memory()); });
  for (size_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    auto server = open(on_disk());
    const Conversations turns(*server);
    suspend(*server);
    EXPECT_EQ(server->loop().status().memory.device_states, 0u);
    EXPECT_EQ(server->loop().status().memory.host_states, 0u);
    server.reset();
    server = open(on_disk());
    EXPECT_EQ(server->loop().take_found().size(), 1u);
    const Answer answer = ask(*server, turns.next[i]);
    expect_same(answer, expected[i]);
    EXPECT_EQ(answer.cached, expected[i].cached);
    EXPECT_EQ(server->loop().status().suspension.damaged, 0u);
    suspend(*server);  // and is continued once more
    server.reset();
    server = open(on_disk());
    const auto more = joined(joined(turns.next[i], answer.ids), some_ids(1300, 7));
    const auto alone = open(in_memory());
    const Conversations again(*alone);
    ask(*alone, turns.next[i]);
    expect_same(ask(*server, more), ask(*alone, more));
    server.reset();
    std::filesystem::remove_all(file(""));
  }
}

TEST_P(LinearSessionsTest, AConversationOutlivesItsServer) { outlives_its_server(); }

// A template renders the answers of the history in another way than the model wrote them: the next
// prompt parts before the tokens that began the answer.
TEST_P(LinearSessionsTest, APromptGoesOnWhereTheHistoryEnds) {
  ServedModel model{.dir = llm_test::golden_dir(GetParam().model)};
  model.config.memory.snapshots.interval = 1024;
  LocalServer server(LocalServer::open(GetParam().device, {}), in_memory(), model);
  const auto first = some_ids(0, 150);
  const auto begin = some_ids(300, 6);  // of the answer
  const auto ask_with = [&](LocalServer& at, const std::vector<int32_t>& history) {
    const auto recorder = at.start(joined(history, begin), 9, "", 1, {}, std::ssize(history));
    const auto& choice = recorder->wait();
    return Answer{choice.ids, choice.logprobs, recorder->cached()};
  };
  ask_with(server, first);
  const auto second = joined(first, some_ids(500, 40));
  const Answer answer = ask_with(server, second);
  EXPECT_EQ(answer.cached, std::ssize(first));
  EXPECT_EQ(ask_with(server, second).cached, std::ssize(second)) << "asked again";
  LocalServer fresh(LocalServer::open(GetParam().device, {}), in_memory(), model);
  expect_same(answer, ask_with(fresh, second));
}

// A damaged state is computed again; nothing else is lost.
// A turn of many requests, after which the reasoning in it is dropped.
TEST_P(LinearSessionsTest, TheEndOfTheUsersMessageIsHeld) {
  constexpr int64_t kMessage = 150;  // no multiple of the interval
  const auto other = joined(some_ids(0, kMessage), some_ids(900, 11));
  const Answer expected = ask(*open(in_memory()), other);
  auto server = open(on_disk());
  std::vector<int32_t> prompt = some_ids(0, kMessage + 5);
  for (size_t i = 0; i < 4; ++i) {
    const Answer answer = ask(*server, prompt, 9, kMessage);
    prompt = joined(joined(prompt, answer.ids), some_ids(500 + 100 * i, 20));
  }
  const Answer again = ask(*server, other, 9, kMessage + 3);
  expect_same(again, expected);
  EXPECT_EQ(again.cached, kMessage);
  ask(*server, prompt, 9, kMessage);
  suspend(*server);
  server.reset();
  server = open(on_disk());
  const auto third = joined(some_ids(0, kMessage), some_ids(700, 11));
  EXPECT_EQ(ask(*server, third, 9, kMessage + 3).cached, kMessage);
}

// Answers that repeat themselves, cut and continued, in memory and from disk.
TEST_P(LinearSessionsTest, DraftsChangeNoConversation) {
  const auto verse = some_ids(0, 50);
  const auto first = joined(joined(verse, verse), verse);
  const Sampling two{.temperature = 1, .logit_bias = {{3, 100.0f}, {5, 100.0f}}, .seed = 1};
  uint64_t right = 0;
  const auto answers = [&](DraftKind drafts) {
    std::vector<Answer> all;
    auto server = open(on_disk());
    server->drafts = drafts;
    std::vector<int32_t> prompt = first;
    for (size_t turn = 0; turn < 3; ++turn) {
      all.push_back(ask(*server, prompt, 50, 0, two));
      prompt = joined(joined(prompt, all.back().ids), turn == 1 ? some_ids(500, 3) : verse);
      all.push_back(ask(*server, prompt, 20, 0, two));
      suspend(*server);
      right += server->loop().status().right_drafts;
      server.reset();
      server = open(on_disk());
      server->drafts = drafts;
    }
    server.reset();
    std::filesystem::remove_all(file(""));
    return all;
  };
  const auto plain = answers(DraftKind::kNone), drafted = answers(DraftKind::kLookup);
  EXPECT_GT(right, 0u);
  for (size_t i = 0; i < plain.size(); ++i) {
    expect_same(drafted[i], plain[i]);
    EXPECT_EQ(drafted[i].cached, plain[i].cached) << i;
  }
}

TEST_P(LinearSessionsTest, ADamagedStateIsComputedAgain) {
  const auto expected = left_alone([&] { return open(in_memory()); });
  auto server = open(on_disk());
  const Conversations turns(*server);
  suspend(*server);
  server.reset();
  std::string rows = llm_test::read_file(file("1.rows"));
  ASSERT_GT(rows.size(), 6u * 4096);
  for (size_t at = rows.size() / 2; at < rows.size(); at += 512) rows[at] ^= 1;  // behind the pages
  write_file_atomically(file("1.rows"), rows);
  server = open(on_disk());
  expect_same(ask(*server, turns.next[0]), expected[0]);
  EXPECT_EQ(server->loop().status().suspension.damaged, 1u);
}

TEST_P(LinearSessionsTest, AnotherModelsSessionIsLeftAlone) {
  auto server = open(on_disk());
  const Conversations turns(*server);
  suspend(*server);
  EngineOptions other = on_disk();
  other.sessions->fingerprint = "b";
  server.reset();
  server = open(other);
  EXPECT_TRUE(server->loop().take_found().empty());
}

std::string name_of(const ::testing::TestParamInfo<Case>& test) {
  std::string name = std::string(test.param.model) + "_" + test.param.device;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, LinearSessionsTest,
                         ::testing::Values(Case{"qwen3-5", "cpu"}, Case{"qwen3-5", "emulated"},
                                           Case{"qwen3-next", "cpu"}),
                         name_of);

// Layers that share another's rows have none on disk.
class SharedRowsSessionsTest : public LinearSessionsTest {};

TEST_P(SharedRowsSessionsTest, AConversationOutlivesItsServer) { outlives_its_server(); }

INSTANTIATE_TEST_SUITE_P(Models, SharedRowsSessionsTest,
                         ::testing::Values(Case{"gemma4-shared", "cpu"},
                                           Case{"gemma4-shared", "emulated"}),
                         name_of);

}  // namespace
}  // namespace fasa::serve
