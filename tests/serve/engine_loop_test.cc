// Many requests on one model: each gets, bit for bit, the answer that it gets alone.
#include "runtime/serve/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "offload/wrapped_device.h"
#include "tests/llm/llm_fixture.h"
#include "tests/serve/local_server.h"

namespace fasa::serve {
namespace {

using namespace llm_test;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class EngineLoopTest : public ::testing::TestWithParam<const char*> {};

TEST_P(EngineLoopTest, ACrowdGetsWhatEachGetsAlone) {
  constexpr int kClients = 5;
  const auto begin_of = [](int client) { return static_cast<size_t>(300 * client); };
  const auto length_of = [](int client) { return static_cast<size_t>(90 + 61 * client); };
  std::vector<Turns> alone;
  for (int client = 0; client < kClients; ++client) {
    LocalServer server(GetParam());
    alone.push_back(converse(server, begin_of(client), length_of(client), ""));
    EXPECT_THAT(alone.back().ids[0], SizeIs(::testing::Gt(0u)));
  }
  LocalServer server(GetParam(), {.max_sequences = 3, .prefill_chunk = 64});
  std::vector<Turns> crowd(kClients);
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      crowd[static_cast<size_t>(client)] =
          converse(server, begin_of(client), length_of(client), std::to_string(client));
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t client = 0; client < kClients; ++client) {
    EXPECT_EQ(crowd[client].ids, alone[client].ids) << client;
    EXPECT_EQ(crowd[client].logprobs, alone[client].logprobs) << client;
    EXPECT_EQ(crowd[client].computed, alone[client].computed) << client;
  }
}

// Requests with drafts and without, in one batch.
TEST_P(EngineLoopTest, DraftsChangeNoAnswer) {
  const std::string verse = some_text(40, 90);
  const std::vector<int32_t> prompt = bytes_of(verse + verse + verse);
  const auto answers = [&](DraftKind drafts) {
    LocalServer server(GetParam(), {.max_sequences = 4, .prefill_chunk = 64});
    std::vector<std::shared_ptr<Recorder>> recorders;
    for (const float temperature : {0.0f, 0.8f, 0.0f}) {
      server.drafts = recorders.size() == 2 ? DraftKind::kNone : drafts;
      const Sampling sampling{.temperature = temperature, .seed = 3};
      recorders.push_back(server.start(prompt, 90, std::to_string(recorders.size()), 2, sampling));
    }
    std::vector<std::vector<Recorder::Choice>> all;
    for (const auto& recorder : recorders) {
      recorder->wait();
      all.push_back(recorder->choices());
    }
    const EngineStatus status = server.loop().status();
    // As many as pay: none perhaps.
    if (drafts == DraftKind::kNone) {
      EXPECT_EQ(status.drafted_tokens, 0u);
    }
    EXPECT_GE(status.drafted_tokens, status.right_drafts);
    return all;
  };
  const auto plain = answers(DraftKind::kNone), drafted = answers(DraftKind::kLookup);
  for (size_t i = 0; i < plain.size(); ++i) {
    for (size_t choice = 0; choice < plain[i].size(); ++choice) {
      EXPECT_EQ(drafted[i][choice].ids, plain[i][choice].ids) << i;
      EXPECT_EQ(drafted[i][choice].logprobs, plain[i][choice].logprobs) << i;
      EXPECT_EQ(drafted[i][choice].end, plain[i][choice].end) << i;
    }
  }
}

// When a client has its answer, the answer is counted and the session is cached.
TEST_P(EngineLoopTest, AnEndIsToldWhenItIsCounted) {
  LocalServer server(GetParam());
  for (uint64_t request = 1; request <= 50; ++request) {
    server.start(bytes_of(some_text(50 * request, 20)), 2)->wait();
    const EngineStatus status = server.loop().status();
    EXPECT_EQ(status.generated_tokens, 2 * request);
    EXPECT_EQ(status.finished_length + status.finished_stop, request);
    EXPECT_EQ(status.running, 0);
    EXPECT_THAT(*status.sessions, SizeIs(request));
  }
}

// A turn computes only its 40 new tokens and the answer's last token, which was never an input.
TEST_P(EngineLoopTest, ATurnComputesWhatIsNew) {
  LocalServer server(GetParam());
  const Turns turns = converse(server, 0, 200, "");
  EXPECT_EQ(turns.computed[0], 200);
  EXPECT_EQ(turns.computed[1], 41);
  EXPECT_EQ(turns.computed[2], 41);
}

TEST_P(EngineLoopTest, WhatWasEvictedIsComputedAsItWas) {
  LocalServer undisturbed(GetParam());
  const Turns expected = converse(undisturbed, 0, 200, "");
  LocalServer server(GetParam());
  std::vector<int32_t> history = bytes_of(some_text(0, 200));
  for (size_t turn = 0; turn < 3; ++turn) {
    const auto recorder = server.start(history, 12, "");
    EXPECT_EQ(recorder->wait().ids, expected.ids[turn]) << turn;
    EXPECT_EQ(recorder->choices()[0].logprobs, expected.logprobs[turn]) << turn;
    history.insert(history.end(), expected.ids[turn].begin(), expected.ids[turn].end());
    const auto more = bytes_of(some_text(1000 + 50 * turn, 40));
    history.insert(history.end(), more.begin(), more.end());
    server.loop().evict_idle();
  }
  EXPECT_GE(server.loop().status().evictions, 2u);
}

// If all layers have a window, a conversation keeps the tokens of its rollback window.
TEST_P(EngineLoopTest, TokensBehindTheRollbackWindowAreRecomputed) {
  const auto beginning = bytes_of(some_text(0, 600));
  LocalServer fresh(LocalServer::open(GetParam(), {}), {}, {.window = 50});
  const auto expected = fresh.start(beginning, 12)->wait();
  for (const int64_t rollback_tokens : {0, 2048}) {
    LocalServer server(LocalServer::open(GetParam(), {}),
                       {.prefill_chunk = 100, .rollback_tokens = rollback_tokens}, {.window = 50});
    const Turns turns = converse(server, 0, 1500, "");
    EXPECT_EQ(turns.computed[1], 41);
    EXPECT_EQ(turns.computed[2], 41);
    const auto recorder = server.start(beginning, 12);
    EXPECT_EQ(recorder->wait().ids, expected.ids) << rollback_tokens;
    EXPECT_EQ(recorder->choices()[0].logprobs, expected.logprobs) << rollback_tokens;
    EXPECT_EQ(recorder->cached(), rollback_tokens == 0 ? 0 : 599);
  }
}

TEST_P(EngineLoopTest, SaltsShareNothing) {
  LocalServer server(GetParam());
  const auto prompt = bytes_of(some_text(0, 150));
  EXPECT_EQ(server.start(prompt, 3, "a")->wait().ids, server.start(prompt, 3, "b")->wait().ids);
  const auto again = server.start(prompt, 3, "b");
  again->wait();
  EXPECT_EQ(again->cached(), 149);
  const auto other = server.start(prompt, 3, "c");
  other->wait();
  EXPECT_EQ(other->cached(), 0);
}

TEST_P(EngineLoopTest, ChoicesShareThePromptAndDrawApart) {
  const Sampling sampling{.temperature = 1.5f, .seed = 7};
  const auto prompt = bytes_of(some_text(40, 130));
  LocalServer server(GetParam());
  const auto together = server.start(prompt, 10, "", 3, sampling);
  together->wait();
  for (size_t choice = 0; choice < 3; ++choice) {
    Sampling own = sampling;
    own.seed += choice;
    LocalServer alone(GetParam());
    EXPECT_EQ(together->choices()[choice].ids, alone.start(prompt, 10, "", 1, own)->wait().ids);
  }
  EXPECT_NE(together->choices()[0].ids, together->choices()[1].ids);
}

TEST_P(EngineLoopTest, ACancelledRequestEndsAndOthersGoOn) {
  LocalServer server(GetParam());
  const auto cancelled = server.start(bytes_of(some_text(0, 100)), 100'000);
  const uint64_t id = server.last_id();
  cancelled->wait_for_tokens(2);
  const auto other = server.start(bytes_of(some_text(500, 80)), 6);
  server.loop().cancel(id);
  EXPECT_EQ(cancelled->wait().end, AnswerEnd::kCancelled);
  LocalServer alone(GetParam());
  EXPECT_EQ(other->wait().ids, alone.start(bytes_of(some_text(500, 80)), 6)->wait().ids);
  EXPECT_EQ(server.loop().status().finished_cancelled, 1u);
}

INSTANTIATE_TEST_SUITE_P(Devices, EngineLoopTest, ::testing::Values("cpu", "emulated"));

// Five conversations in memory for two: those that wait get the same answers.
TEST(EngineLoopMemory, ASmallDeviceServesManyInTurns) {
  constexpr uint64_t kLimit = uint64_t{17} << 20;
  std::vector<Turns> alone;
  for (size_t client = 0; client < 5; ++client) {
    LocalServer server("emulated");
    alone.push_back(converse(server, 200 * client, 700, ""));
  }
  LocalServer server("emulated", {.max_sequences = 5, .prefill_chunk = 64}, kLimit);
  std::vector<Turns> crowd(5);
  std::vector<std::thread> clients;
  for (size_t client = 0; client < 5; ++client) {
    clients.emplace_back([&, client] {
      crowd[client] = converse(server, 200 * client, 700, std::to_string(client));
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t client = 0; client < 5; ++client) EXPECT_EQ(crowd[client].ids, alone[client].ids);
  const EngineStatus status = server.loop().status();
  EXPECT_GT(status.evictions + status.preemptions, 0u) << status.device_memory.peak_bytes;
}

TEST(EngineLoopMemory, WhatNeverFitsIsRefusedWithTheNumbers) {
  LocalServer server("emulated", {.prefill_chunk = 64}, uint64_t{16} << 20);
  const auto refused = server.start(std::vector<int32_t>(200'000, 65), 10);
  refused->wait();
  EXPECT_EQ(refused->error_kind(), ErrorKind::kBudget);
  EXPECT_THAT(refused->error(), HasSubstr("device_memory"));
  const auto next = server.start(bytes_of(some_text(0, 60)), 3);
  EXPECT_THAT(next->wait().ids, SizeIs(3));
}

// Memory in which a conversation can be had also lets it go on after it was evicted: its answer is
// computed anew one token after another where several at once take too much scratch.
TEST(EngineLoopMemory, AnEvictedConversationGoesOnWhereItFits) {
  const auto first = bytes_of(some_text(0, 6000));
  const auto host_use = [](LocalServer& server) {
    const EngineStatus status = server.loop().status();  // on `cpu` one limit holds for both
    return status.host_memory.peak_bytes + status.device_memory.peak_bytes;
  };
  LocalServer roomy("cpu", {.prefill_chunk = 64});
  auto next = first;
  const auto said = roomy.start(first, 60)->wait().ids;
  const uint64_t needed = host_use(roomy);
  next.insert(next.end(), said.begin(), said.end());
  const auto more = bytes_of(some_text(7000, 20));
  next.insert(next.end(), more.begin(), more.end());
  const auto expected = roomy.start(next, 5)->wait().ids;

  DeviceOptions options;
  options.name = "cpu";
  options.threads = 2;
  options.host_memory = needed + (uint64_t{100} << 10);
  LocalServer scarce(open_device(options), {.prefill_chunk = 64});
  EXPECT_EQ(scarce.start(first, 60)->wait().ids, said);
  scarce.start(bytes_of(some_text(5000, 1500)), 5, "another")->wait();
  const auto recorder = scarce.start(next, 5);
  EXPECT_EQ(recorder->wait().ids, expected) << recorder->error();
}

TEST(EngineLoopQueue, IsBoundedAndDrains) {
  LocalServer server("cpu", {.max_sequences = 1, .max_waiting = 2});
  const auto busy = server.start(bytes_of(some_text(0, 100)), 100'000);
  busy->wait_for_tokens(1);
  const uint64_t busy_id = server.last_id();
  const auto second = server.start(bytes_of("a"), 1), third = server.start(bytes_of("b"), 1);
  EXPECT_EQ(server.loop().submit({.prompt = {65}, .answer = {.max_tokens = 1}, .observer = second}),
            std::nullopt);
  server.loop().drain();
  server.loop().cancel(busy_id);
  second->wait();
  third->wait();
  EXPECT_EQ(server.loop().submit({.prompt = {65}, .answer = {.max_tokens = 1}, .observer = second}),
            std::nullopt);
}

// A device that is lost at any call, as if it were unplugged.
class MortalDevice final : public WrappedDevice {
 public:
  explicit MortalDevice(std::unique_ptr<Device> inner)
      : WrappedDevice(*inner), owned_(std::move(inner)) {}
  void die() { dead_ = true; }
  void record(EventView event, StreamView stream) override {
    if (dead_) throw DeviceError("the device is lost");
    WrappedDevice::record(event, stream);
  }

 private:
  std::unique_ptr<Device> owned_;
  std::atomic<bool> dead_ = false;
};

TEST(EngineLoopDevice, ALostOneEndsTheLoopAndEverybodyHearsOfIt) {
  auto device = std::make_unique<MortalDevice>(LocalServer::open("emulated", std::nullopt));
  MortalDevice& mortal = *device;
  LocalServer server(std::move(device), {.max_sequences = 1});
  const auto served = server.start(bytes_of(some_text(0, 100)), 100'000);
  const auto queued = server.start(bytes_of(some_text(0, 50)), 5);
  served->wait_for_tokens(1);
  mortal.die();
  for (const auto& one : {served, queued}) {
    one->wait();
    EXPECT_EQ(one->error_kind(), ErrorKind::kDevice);
    EXPECT_THAT(one->error(), HasSubstr("the device is lost"));
  }
  // A request that has received its end is already counted.
  EXPECT_THAT(server.loop().failure().value_or(""), HasSubstr("the device is lost"));
  EXPECT_EQ(server.loop().status().finished_error, 2u);
  EXPECT_TRUE(server.loop().idle());
  EXPECT_EQ(server.loop().submit({.prompt = {65}, .observer = served}), std::nullopt);
}

}  // namespace
}  // namespace fasa::serve
