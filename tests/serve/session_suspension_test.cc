// Conversations that are suspended to disk and resumed give, bit for bit, the answers of those that
// stayed in memory.
#include "runtime/serve/session_suspension.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/llm/temp_model.h"
#include "tests/serve/local_server.h"

namespace fasa::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class SessionSuspensionTest : public ::testing::TestWithParam<const char*> {
 protected:
  EngineOptions options(const std::string& fingerprint = "a") const {
    return {.prefill_chunk = 96,
            .sessions =
                SuspensionOptions{.dir = folder_.path() + "/sessions", .fingerprint = fingerprint}};
  }
  std::string file(const std::string& name) const { return folder_.path() + "/sessions/" + name; }

 private:
  llm_test::TempDir folder_;
};

// A device with a limit for the memory that rows lie in; none: no limit.
std::unique_ptr<Device> open_limited(const std::string& name, std::optional<uint64_t> limit) {
  DeviceOptions options;
  options.name = name;
  options.threads = 2;
  (name == "cpu" ? options.device_memory : options.host_memory) = limit;
  return open_device(options);
}

uint64_t used_bytes(const std::string& device, const LocalServer& server) {
  const EngineStatus status = server.loop().status();
  return (device == "cpu" ? status.device_memory : status.host_memory).used_bytes;
}

// Returns when all cached sequences are on disk alone.
void suspend(LocalServer& server) {
  server.loop().suspend_idle_now();
  while (server.loop().status().suspension.busy) std::this_thread::yield();
}

// The turns of converse(), with `between` called after each.
Turns converse_with(const std::function<LocalServer&()>& server,
                    const std::function<void()>& between) {
  Turns turns;
  std::vector<int32_t> history = bytes_of(some_text(0, 500));
  for (size_t turn = 0; turn < 3; ++turn) {
    const auto recorder = server().start(history, 12, "");
    const auto& choice = recorder->wait();
    turns.ids.push_back(choice.ids);
    turns.logprobs.push_back(choice.logprobs);
    turns.computed.push_back(static_cast<int64_t>(history.size()) - recorder->cached());
    history.insert(history.end(), choice.ids.begin(), choice.ids.end());
    const auto more = bytes_of(some_text(1000 + 50 * turn, 40));
    history.insert(history.end(), more.begin(), more.end());
    between();
  }
  return turns;
}

Turns undisturbed(const char* device) {
  LocalServer server(device, {.prefill_chunk = 96});
  return converse_with([&]() -> LocalServer& { return server; }, [] {});
}

void expect_equal(const Turns& turns, const Turns& expected) {
  EXPECT_EQ(turns.ids, expected.ids);
  EXPECT_EQ(turns.logprobs, expected.logprobs);
  EXPECT_EQ(turns.computed, expected.computed);
}

EngineOptions with_short_turns(EngineOptions options) {
  options.sparse_turn_tokens = 256;
  return options;
}

// A document and an answer, then a question that continues from there.
struct Question {
  std::vector<int32_t> document = bytes_of(some_text(0, 3000));
  std::vector<int32_t> next = {};

  explicit Question(LocalServer& server) {
    const auto answer = server.start(document, 6)->wait().ids;
    next = document;
    next.insert(next.end(), answer.begin(), answer.end());
    const auto more = bytes_of(some_text(5000, 30));
    next.insert(next.end(), more.begin(), more.end());
  }
};

TEST_P(SessionSuspensionTest, AResumedConversationIsTheSame) {
  LocalServer server(GetParam(), options());
  const Turns turns = converse_with([&]() -> LocalServer& { return server; },
                                    [&] {
                                      suspend(server);
                                      const EngineStatus status = server.loop().status();
                                      ASSERT_THAT(*status.sessions, SizeIs(1));
                                      EXPECT_FALSE((*status.sessions)[0].in_memory);
                                      EXPECT_EQ((*status.sessions)[0].suspended_tokens,
                                                (*status.sessions)[0].tokens);
                                      EXPECT_EQ(status.memory.host_rows, 0u);
                                    });
  expect_equal(turns, undisturbed(GetParam()));
  const SuspensionStatus suspension = server.loop().status().suspension;
  EXPECT_EQ(suspension.suspended, 3u);
  EXPECT_EQ(suspension.resumed, 2u);
  EXPECT_EQ(suspension.damaged, 0u);
}

// Decoded turns give the same tokens, whether the conversation was in memory or on disk.
TEST_P(SessionSuspensionTest, ShortTurnsAreTheSameWhereverTheyBegin) {
  EngineOptions kept{.prefill_chunk = 96, .sparse_turn_tokens = 256};
  EngineOptions suspended = options();
  suspended.sparse_turn_tokens = kept.sparse_turn_tokens;
  const auto in_memory = std::make_unique<LocalServer>(GetParam(), kept);
  const Turns expected = converse_with([&]() -> LocalServer& { return *in_memory; }, [] {});
  EXPECT_NE(expected.logprobs, undisturbed(GetParam()).logprobs) << "no turn was decoded";

  const auto evicted = std::make_unique<LocalServer>(GetParam(), kept);
  const Turns computed_again = converse_with([&]() -> LocalServer& { return *evicted; },
                                             [&] { evicted->loop().evict_idle(); });
  EXPECT_EQ(computed_again.ids, expected.ids);
  EXPECT_EQ(computed_again.logprobs, expected.logprobs);

  auto server = std::make_unique<LocalServer>(GetParam(), suspended);
  const auto on_disk =
      converse_with([&]() -> LocalServer& { return *server; }, [&] { suspend(*server); });
  expect_equal(on_disk, expected);
  server.reset();
  std::filesystem::remove_all(file(""));
  server = std::make_unique<LocalServer>(GetParam(), suspended);
  const Turns restarted = converse_with([&]() -> LocalServer& { return *server; },
                                        [&] {
                                          suspend(*server);
                                          server.reset();
                                          server =
                                              std::make_unique<LocalServer>(GetParam(), suspended);
                                        });
  expect_equal(restarted, expected);
}

// A conversation is not continued by another one's turn that begins with the same words.
TEST_P(SessionSuspensionTest, AnothersBeginningMakesNoTurnShort) {
  const auto prompt = bytes_of(some_text(0, 400));
  auto own = prompt;
  const auto question = bytes_of(some_text(2000, 50));
  own.insert(own.end(), question.begin(), question.end());
  LocalServer alone(GetParam(), {.sparse_turn_tokens = 256});
  const auto expected = alone.start(own, 6)->wait();
  LocalServer server(GetParam(), {.sparse_turn_tokens = 256});
  server.start(prompt, 6)->wait();
  const auto answer = server.start(own, 6);
  EXPECT_EQ(answer->wait().logprobs, expected.logprobs);
  EXPECT_EQ(answer->cached(), 400);
}

// Repeating a question recomputes its last token, with the same result as the first time.
TEST_P(SessionSuspensionTest, AShortTurnAskedAgainIsTheSame) {
  LocalServer server(GetParam(), {.sparse_turn_tokens = 256});
  auto prompt = bytes_of(some_text(0, 400));
  const auto first = server.start(prompt, 6)->wait().ids;
  prompt.insert(prompt.end(), first.begin(), first.end());
  const auto more = bytes_of(some_text(2000, 50));
  prompt.insert(prompt.end(), more.begin(), more.end());
  const auto answer = server.start(prompt, 6)->wait();
  const auto again = server.start(prompt, 6);
  EXPECT_EQ(again->wait().logprobs, answer.logprobs);
  EXPECT_EQ(again->cached(), static_cast<int64_t>(prompt.size()) - 1);
}

TEST_P(SessionSuspensionTest, AConversationOutlivesItsServer) {
  auto server = std::make_unique<LocalServer>(GetParam(), options());
  const Turns turns = converse_with([&]() -> LocalServer& { return *server; },
                                    [&] {
                                      suspend(*server);
                                      server.reset();
                                      server = std::make_unique<LocalServer>(GetParam(), options());
                                      EXPECT_THAT(server->loop().take_found(), SizeIs(1));
                                    });
  expect_equal(turns, undisturbed(GetParam()));
}

// Conversations that were not suspended when their server ended are computed again.
TEST_P(SessionSuspensionTest, AnAbruptEndLosesOnlyWhatWasNotSuspended) {
  auto server = std::make_unique<LocalServer>(GetParam(), options());
  int turn = 0;
  const Turns turns = converse_with([&]() -> LocalServer& { return *server; },
                                    [&] {
                                      if (turn++ == 0) suspend(*server);
                                      server.reset();
                                      server = std::make_unique<LocalServer>(GetParam(), options());
                                    });
  const Turns expected = undisturbed(GetParam());
  EXPECT_EQ(turns.ids[1], expected.ids[1]);
  EXPECT_EQ(turns.logprobs[1], expected.logprobs[1]);
  EXPECT_EQ(turns.computed[1], expected.computed[1]);
  // The second turn is lost: its answer is now computed as part of the prompt.
  EXPECT_EQ(turns.computed[2], expected.computed[2] + 12 + 40);
}

TEST_P(SessionSuspensionTest, EvictedSessionsAreOnDisk) {
  LocalServer server(GetParam(), options());
  const Turns turns =
      converse_with([&]() -> LocalServer& { return server; }, [&] { server.loop().evict_idle(); });
  expect_equal(turns, undisturbed(GetParam()));
}

// One conversation is resumed while another one runs.
TEST_P(SessionSuspensionTest, OthersGoOnWhileOneResumes) {
  const auto prompt = bytes_of(some_text(0, 900)), other = bytes_of(some_text(900, 300));
  LocalServer alone(GetParam());
  const auto expected = alone.start(prompt, 8)->wait().ids;
  const auto expected_other = alone.start(other, 60)->wait().ids;
  LocalServer server(GetParam(), options());
  EXPECT_EQ(server.start(prompt, 8)->wait().ids, expected);
  suspend(server);
  const auto streams = server.start(other, 60);
  streams->wait_for_tokens(3);
  const auto resumed = server.start(prompt, 8);
  EXPECT_EQ(resumed->wait().ids, expected);
  EXPECT_EQ(resumed->cached(), 899);
  EXPECT_EQ(streams->wait().ids, expected_other);
}

// A session is written in pieces while a request waits for its memory; a stream beside them gets
// tokens between the pieces.
TEST_P(SessionSuspensionTest, OthersGoOnWhileOneIsEvicted) {
  const auto large = bytes_of(some_text(0, 2000)), other = bytes_of(some_text(4000, 200)),
             needing = bytes_of(some_text(5000, 1600));
  LocalServer alone(GetParam(), {.prefill_chunk = 96});
  const auto expected_large = alone.start(large, 6)->wait().ids;
  const auto expected_other = alone.start(other, 60)->wait().ids;
  constexpr uint64_t kGrowth = uint64_t{4} << 20;  // of the stream; less than `needing` takes
  const uint64_t limit = used_bytes(GetParam(), alone) + kGrowth;
  const auto expected = alone.start(needing, 6)->wait().ids;

  EngineOptions recorded = options();
  std::shared_ptr<Recorder> stream;
  std::vector<size_t> tokens;  // of the stream, at each change on disk
  recorded.sessions->before_change = [&] {
    if (stream) tokens.push_back(stream->choices()[0].ids.size());
  };
  LocalServer server(open_limited(GetParam(), limit), recorded);
  EXPECT_EQ(server.start(large, 6)->wait().ids, expected_large);
  stream = server.start(other, 100'000);
  const uint64_t id = server.last_id();
  stream->wait_for_tokens(3);
  EXPECT_EQ(server.start(needing, 6)->wait().ids, expected);
  const EngineStatus status = server.loop().status();
  EXPECT_EQ(status.suspension.suspended, 1u);
  EXPECT_EQ(status.evictions, 1u);
  EXPECT_EQ(status.preemptions, 0u);
  server.loop().cancel(id);
  const auto streamed = stream->wait().ids;
  const size_t common = std::min(streamed.size(), expected_other.size());
  EXPECT_TRUE(std::equal(streamed.begin(), streamed.begin() + common, expected_other.begin()));
  ASSERT_FALSE(tokens.empty());
  EXPECT_GT(tokens.back(), tokens.front());
  const auto again = server.start(large, 6);
  EXPECT_EQ(again->wait().ids, expected_large);
  EXPECT_EQ(again->cached(), 1999);
}

// Five conversations in memory for two, the others on disk.
TEST_P(SessionSuspensionTest, ASmallDeviceServesManyInTurns) {
  std::vector<Turns> alone;
  uint64_t limit = 0;
  LocalServer unlimited(GetParam(), {.prefill_chunk = 64});
  for (size_t client = 0; client < 5; ++client) {
    alone.push_back(converse(unlimited, 200 * client, 700, std::to_string(client)));
    if (client == 1) limit = used_bytes(GetParam(), unlimited);
  }
  EngineOptions limited = options();
  limited.prefill_chunk = 64;
  LocalServer server(open_limited(GetParam(), limit), limited);
  std::vector<Turns> crowd(5);
  std::vector<std::thread> clients;
  for (size_t client = 0; client < 5; ++client) {
    clients.emplace_back([&, client] {
      crowd[client] = converse(server, 200 * client, 700, std::to_string(client));
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t client = 0; client < 5; ++client) {
    EXPECT_EQ(crowd[client].ids, alone[client].ids) << client;
    EXPECT_EQ(crowd[client].logprobs, alone[client].logprobs) << client;
  }
  EXPECT_GT(server.loop().status().suspension.suspended, 0u);
}

// A prompt that shares half of a suspended sequence, and a fork of the resumed one.
TEST_P(SessionSuspensionTest, APromptTakesWhatItShares) {
  LocalServer server(GetParam(), options());
  const auto prompt = bytes_of(some_text(0, 400));
  server.start(prompt, 4)->wait();
  suspend(server);
  std::vector<int32_t> changed(prompt.begin(), prompt.begin() + 250);
  const auto more = bytes_of(some_text(2000, 100));
  changed.insert(changed.end(), more.begin(), more.end());
  const auto forked = server.start(changed, 6);
  LocalServer alone(GetParam());
  EXPECT_EQ(forked->wait().ids, alone.start(changed, 6)->wait().ids);
  EXPECT_EQ(forked->cached(), 250);
  const auto again = server.start(prompt, 4);
  EXPECT_EQ(again->wait().ids, alone.start(prompt, 4)->wait().ids);
  EXPECT_EQ(again->cached(), 399);
}

// On a processor a short turn reads only the rows that it selects.
TEST_P(SessionSuspensionTest, AShortTurnReadsWhatItSelects) {
  LocalServer kept(GetParam(), with_short_turns({.prefill_chunk = 96}));
  const Question same(kept);
  const auto expected = kept.start(same.next, 10)->wait();
  LocalServer server(GetParam(), with_short_turns(options()));
  const Question question(server);
  ASSERT_EQ(question.next, same.next);
  suspend(server);
  const uint64_t all = server.loop().status().suspension.disk_bytes;
  const auto resumed = server.start(question.next, 10)->wait();
  EXPECT_EQ(resumed.ids, expected.ids);
  EXPECT_EQ(resumed.logprobs, expected.logprobs);
  const SuspensionStatus suspension = server.loop().status().suspension;
  EXPECT_EQ(suspension.resumed, 1u);
  if (std::string(GetParam()) == "cpu") {
    EXPECT_LT(suspension.read_bytes, all * 3 / 4);
  } else {
    EXPECT_GT(suspension.read_bytes, all * 3 / 4);
  }
}

// A sequence whose rows are still on disk is suspended again, forked, truncated, prefilled and
// stepped beside others, with the same results.
TEST_P(SessionSuspensionTest, WhatLacksRowsIsAConversationLikeOthers) {
  const auto converse_on = [&](LocalServer& server, const std::function<void()>& between) {
    const Question question(server);
    std::vector<std::vector<double>> heard;
    const auto ask = [&](const std::vector<int32_t>& prompt) {
      between();
      const auto beside = server.start(bytes_of(some_text(9000, 200)), 30);
      const auto answer = server.start(prompt, 5)->wait();
      heard.push_back(answer.logprobs);
      beside->wait();
      return answer.ids;
    };
    auto history = question.next;
    const auto go_on = [&](size_t begin, size_t tokens) {
      const auto answer = ask(history);
      history.insert(history.end(), answer.begin(), answer.end());
      const auto more = bytes_of(some_text(begin, tokens));
      history.insert(history.end(), more.begin(), more.end());
    };
    go_on(6000, 40);
    go_on(6500, 300);  // a turn that reads all rows
    go_on(7000, 20);
    ask(history);
    ask(history);          // the same prompt again: a fork
    history.resize(3004);  // within the first answer
    const auto other = bytes_of(some_text(8000, 25));
    history.insert(history.end(), other.begin(), other.end());
    ask(history);
    auto early = std::vector(history.begin(), history.begin() + 1500);
    early.insert(early.end(), other.begin(), other.end());
    ask(early);
    return heard;
  };
  LocalServer kept(GetParam(), with_short_turns({.prefill_chunk = 96}));
  const auto expected = converse_on(kept, [] {});
  LocalServer suspended(GetParam(), with_short_turns(options()));
  EXPECT_EQ(converse_on(suspended, [&] { suspend(suspended); }), expected);
  std::filesystem::remove_all(file(""));
  // Suspends once, so that later turns find sequences in memory that lack rows.
  LocalServer once(GetParam(), with_short_turns(options()));
  int turn = 0;
  EXPECT_EQ(converse_on(once,
                        [&] {
                          if (turn++ == 0) once.loop().evict_idle();
                        }),
            expected);
}

// Damage in slices, checksums and selected rows is detected, and the conversation is computed
// again.
TEST_P(SessionSuspensionTest, DamageUnderAShortTurnIsComputedAgain) {
  LocalServer kept(GetParam(), with_short_turns({.prefill_chunk = 96}));
  const Question same(kept);
  const auto expected = kept.start(same.next, 10)->wait();
  for (const bool rows : {false, true}) {
    std::filesystem::remove_all(file(""));
    LocalServer server(GetParam(), with_short_turns(options()));
    const Question question(server);
    suspend(server);
    const PageFormat format{server.runtime().traits().page};
    {
      std::fstream pages(file("1.rows"), std::ios::in | std::ios::out | std::ios::binary);
      const std::string noise(rows ? format.bytes.rows : 1, '\xa5');
      for (size_t page = 5; page < 40; ++page) {
        pages.seekp(static_cast<std::streamoff>(page * format.page_bytes() +
                                                (rows ? format.rows_begin() : 3)));
        pages.write(noise.data(), static_cast<std::streamsize>(noise.size()));
      }
    }
    const auto again = server.start(question.next, 10);
    EXPECT_EQ(again->wait().logprobs, expected.logprobs);
    EXPECT_EQ(again->choices()[0].ids, expected.ids);
    EXPECT_EQ(server.loop().status().suspension.damaged, 1u) << rows;
    EXPECT_FALSE(std::filesystem::exists(file("1.rows")));
    const auto later = server.start(question.next, 10);
    EXPECT_EQ(later->wait().logprobs, expected.logprobs);
  }
}

TEST_P(SessionSuspensionTest, DamagedRowsAreComputedAgain) {
  LocalServer server(GetParam(), options());
  const auto prompt = bytes_of(some_text(0, 400));
  const auto first = server.start(prompt, 6)->wait();
  suspend(server);
  {
    std::fstream rows(file("1.rows"), std::ios::in | std::ios::out | std::ios::binary);
    const PageFormat format{server.runtime().traits().page};
    rows.seekp(static_cast<std::streamoff>(3 * format.page_bytes() + format.rows_begin() + 100));
    rows.put('x').put('y');
  }
  const auto again = server.start(prompt, 6);
  EXPECT_EQ(again->wait().ids, first.ids);
  EXPECT_EQ(again->choices()[0].logprobs, first.logprobs);
  EXPECT_LT(again->cached(), 399);
  EXPECT_EQ(server.loop().status().suspension.damaged, 1u);
  EXPECT_FALSE(std::filesystem::exists(file("1.rows")));
}

TEST_P(SessionSuspensionTest, SaltsAndFingerprintsShareNothing) {
  const auto prompt = bytes_of(some_text(0, 200));
  {
    LocalServer server(GetParam(), options());
    server.start(prompt, 3, "mine")->wait();
    suspend(server);
    const auto other = server.start(prompt, 3, "another's");
    other->wait();
    EXPECT_EQ(other->cached(), 0);
  }
  {
    LocalServer other_model(GetParam(), options("b"));
    EXPECT_THAT(other_model.loop().take_found(), SizeIs(0));
    const auto asked = other_model.start(prompt, 3, "mine");
    asked->wait();
    EXPECT_EQ(asked->cached(), 0);
  }
  LocalServer server(GetParam(), options());
  const auto asked = server.start(prompt, 3, "mine");
  asked->wait();
  EXPECT_EQ(asked->cached(), 199);
}

TEST_P(SessionSuspensionTest, TheDiskHasALimit) {
  EngineOptions limited = options();
  const auto of = [](size_t begin, size_t tokens) { return bytes_of(some_text(begin, tokens)); };
  {
    LocalServer server(GetParam(), limited);
    server.start(of(0, 200), 3)->wait();
    suspend(server);
    limited.sessions->limit_bytes = server.loop().status().suspension.disk_bytes * 3 / 2;
  }
  LocalServer server(GetParam(), limited);
  server.start(of(1000, 200), 3)->wait();
  suspend(server);  // uses the disk space of the first
  EXPECT_FALSE(std::filesystem::exists(file("1.rows")));
  EXPECT_TRUE(std::filesystem::exists(file("2.rows")));
  server.start(of(2000, 900), 3)->wait();
  suspend(server);  // larger than the limit
  const EngineStatus status = server.loop().status();
  EXPECT_TRUE(status.sessions->back().in_memory);
  EXPECT_LE(status.suspension.disk_bytes, limited.sessions->limit_bytes);
}

// The conversation continues from memory, and nothing of the attempt stays on disk.
TEST_P(SessionSuspensionTest, ADiskThatRefusesKeepsNothing) {
  EngineOptions refusing = options();
  int left = 5;
  refusing.sessions->before_change = [&left] {
    if (left-- == 0) throw UsageError("the disk is full");
  };
  LocalServer server(GetParam(), refusing);
  const auto prompt = bytes_of(some_text(0, 400));
  const auto first = server.start(prompt, 3)->wait().ids;
  suspend(server);
  EXPECT_LT(left, 0);
  EXPECT_FALSE(std::filesystem::exists(file("1.rows")));
  EXPECT_FALSE(std::filesystem::exists(file("1.session")));
  const EngineStatus status = server.loop().status();
  EXPECT_TRUE(status.sessions->front().in_memory);
  EXPECT_EQ(status.suspension.disk_bytes, 0u);
  const auto again = server.start(prompt, 3);
  EXPECT_EQ(again->wait().ids, first);
  EXPECT_EQ(again->cached(), 399);
}

TEST_P(SessionSuspensionTest, AForgottenSessionLeavesTheDisk) {
  LocalServer server(GetParam(), options());
  server.start(bytes_of(some_text(0, 200)), 3)->wait();
  suspend(server);
  ASSERT_TRUE(std::filesystem::exists(file("1.session")));
  ASSERT_TRUE(server.loop().forget("", server.loop().status().sessions->front().id));
  server.start(bytes_of("x"), 1)->wait();
  EXPECT_FALSE(std::filesystem::exists(file("1.session")));
  EXPECT_FALSE(std::filesystem::exists(file("1.rows")));
}

std::vector<std::string> record_ids(const Conversation& conversation) {
  std::vector<std::string> ids;
  for (const auto& record : conversation.records) ids.push_back(record->id);
  return ids;
}

// A server in the same folder finds the conversation's records as they last were, also if they
// changed on disk alone.
TEST_P(SessionSuspensionTest, RecordsGoWithTheirConversation) {
  const auto record = [](const char* id) { return std::make_shared<Record>(id, "data"); };
  std::vector<int32_t> ids = bytes_of(some_text(0, 200));
  const auto attach = [&](LocalServer& server, Records records) {
    server.loop().attach({.salt = "", .ids = ids, .records = std::move(records)});
  };
  {
    LocalServer server(GetParam(), options());
    const auto said = server.start(ids, 3)->wait().ids;
    ids.insert(ids.end(), said.begin(), said.end());
    attach(server, {record("first")});
    ids.push_back('x');
    server.start(ids, 3)->wait();  // the conversation goes on
    attach(server, {record("second")});
    server.start(bytes_of(some_text(0, 100)), 3)->wait();  // another begins alike
    suspend(server);
    attach(server, {record("third")});
    server.loop().detach("", "second");
    server.start(bytes_of("x"), 1)->wait();
  }
  LocalServer server(GetParam(), options());
  std::vector<std::vector<std::string>> found;
  for (const Conversation& one : server.loop().take_found()) {
    if (!one.records.empty()) found.push_back(record_ids(one));
  }
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0], ::testing::ElementsAre("first", "third"));
  for (const char* const id : {"first", "third"}) server.loop().detach("", id);
  server.start(bytes_of("y"), 1)->wait();
  for (const SessionStatus& session : *server.loop().status().sessions) {
    EXPECT_LT(session.tokens, 200);
  }
}

TEST_P(SessionSuspensionTest, IdleOnesGoByThemselves) {
  EngineOptions soon = options();
  soon.sessions->idle_after = 0.01;
  LocalServer server(GetParam(), soon);
  server.start(bytes_of(some_text(0, 200)), 3)->wait();
  while (server.loop().status().suspension.suspended == 0) std::this_thread::yield();
  EXPECT_FALSE(server.loop().status().sessions->front().in_memory);
}

INSTANTIATE_TEST_SUITE_P(Devices, SessionSuspensionTest, ::testing::Values("cpu", "emulated"));

}  // namespace
}  // namespace fasa::serve
