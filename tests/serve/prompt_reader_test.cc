// Long prompts are read in pieces between the steps of others; what they get stays what they get by
// steps.
#include "runtime/serve/prompt_reader.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/serve/stepped_engine.h"

namespace fasa::serve {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Steps and pieces are the smallest.
EngineOptions small_steps() {
  return {.prefill_chunk = 64, .max_step_seconds = 1e-9, .idle_step_seconds = 1e-9};
}

GenerationRequest request(std::vector<int32_t> prompt, int64_t max_tokens,
                          std::shared_ptr<Recorder> recorder) {
  return {.prompt = std::move(prompt),
          .answer = {.max_tokens = max_tokens, .logprobs = 0},
          .observer = std::move(recorder)};
}

class PromptReaderTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<SteppedEngine> engine(const EngineOptions& options = small_steps()) const {
    return std::make_unique<SteppedEngine>(LocalServer::open(GetParam(), {}), ServedModel{},
                                           options);
  }
  std::shared_ptr<Recorder> submit(SteppedEngine& engine, std::vector<int32_t> prompt,
                                   int64_t max_tokens) {
    auto recorder = std::make_shared<Recorder>();
    engine.submit(request(std::move(prompt), max_tokens, recorder), ++last_id_);
    return recorder;
  }
  // By one step.
  Recorder::Choice by_step(const std::vector<int32_t>& prompt, int64_t max_tokens) {
    const auto alone = engine({.prefill_chunk = 8192, .idle_step_seconds = kNoLimit});
    const auto recorder = submit(*alone, prompt, max_tokens);
    while (!alone->idle()) {
      alone->step();
      EXPECT_EQ(alone->reader().choice(), nullptr);
    }
    return recorder->choices()[0];
  }
  static void finish(SteppedEngine& engine) {
    while (!engine.idle()) engine.step();
  }

  const std::vector<int32_t> long_prompt_ = bytes_of(some_text(0, 1200));
  uint64_t last_id_ = 0;
};

TEST_P(PromptReaderTest, AnswersAreThoseOfSteps) {
  const auto expected = by_step(long_prompt_, 8);
  const auto server = engine();
  const auto recorder = submit(*server, long_prompt_, 8);
  int in_pieces = 0;
  while (!server->idle()) {
    server->step();
    in_pieces += server->reader().in_chunk() ? 1 : 0;
  }
  EXPECT_GT(in_pieces, 1200 / (64 + OpenPrompt::kFewRows));
  EXPECT_EQ(recorder->choices()[0].ids, expected.ids);
  EXPECT_EQ(recorder->choices()[0].logprobs, expected.logprobs);
}

// A stream gets a token in every step while the prompt's progress rises in each.
TEST_P(PromptReaderTest, StreamsAndProgressGoOnInsideAChunk) {
  const auto server = engine();
  const auto stream = submit(*server, bytes_of("In the beginning"), 100'000);
  const uint64_t stream_id = last_id_;
  for (int i = 0; i < 3; ++i) server->step();
  const auto recorder = submit(*server, long_prompt_, 2);
  server->step();
  const ActiveChoice* const reading = server->reader().choice();
  ASSERT_NE(reading, nullptr);
  double before = 0;
  bool partly = false;
  while (server->reader().choice() != nullptr) {
    const size_t tokens = stream->choices()[0].ids.size();
    const double done = server->computed(*reading);
    EXPECT_GT(done, before);
    before = done;
    partly |= recorder->prefilled() > 300 && recorder->prefilled() < 900;
    server->step();
    EXPECT_EQ(stream->choices()[0].ids.size(), tokens + 1);
  }
  EXPECT_TRUE(partly);
  EXPECT_EQ(recorder->prefilled(), 1200);
  server->cancel(stream_id);
  finish(*server);
}

TEST_P(PromptReaderTest, AShortPromptDoesNotWaitForAChunk) {
  const auto question = bytes_of(some_text(2000, 20));
  const auto expected_question = by_step(question, 2);
  const auto expected = by_step(long_prompt_, 4);
  const auto server = engine();
  const auto recorder = submit(*server, long_prompt_, 4);
  for (int i = 0; i < 8; ++i) server->step();
  const ActiveChoice* const reading = server->reader().choice();
  ASSERT_NE(reading, nullptr);
  const double before = server->computed(*reading);
  const auto asked = submit(*server, question, 2);
  for (int i = 0; i < 5; ++i) server->step();
  EXPECT_EQ(asked->choices()[0].ids, expected_question.ids);
  EXPECT_TRUE(server->reader().reads(*reading));
  EXPECT_GE(server->computed(*reading), before) << "the chunk was lost";
  finish(*server);
  EXPECT_EQ(asked->choices()[0].logprobs, expected_question.logprobs);
  EXPECT_EQ(recorder->choices()[0].ids, expected.ids);
  EXPECT_EQ(recorder->choices()[0].logprobs, expected.logprobs);
}

// One that takes longer than the chunk does waits for its end, then is read in chunks itself.
TEST_P(PromptReaderTest, LongPromptsTakeTurnsAtTheEndsOfChunks) {
  const auto first = bytes_of(some_text(0, 5000)), second = bytes_of(some_text(100, 4000));
  const auto expected = by_step(second, 2);
  EngineOptions options{.prefill_chunk = 512, .max_step_seconds = 0.01, .idle_step_seconds = 0.01};
  const auto server = engine(options);
  const auto one = submit(*server, first, 2);
  server->step();
  const ActiveChoice* const reading = server->reader().choice();
  ASSERT_NE(reading, nullptr);
  const auto two = submit(*server, second, 2);
  while (server->reader().choice() == reading && server->reader().in_chunk()) server->step();
  const bool by_chunks = server->runtime().prompts().chunk_bytes(*reading->sequence, 5000) == 0;
  const int64_t read = reading->log.size();
  EXPECT_TRUE(by_chunks ? read > 0 && read <= 2048 && read % kPageTokens == 0 : read == 5000)
      << read;
  finish(*server);
  EXPECT_EQ(two->choices()[0].ids, expected.ids);
  EXPECT_EQ(two->choices()[0].logprobs, expected.logprobs);
  EXPECT_EQ(one->choices()[0].ids.size(), 2u);
}

// A cancelled prompt keeps its whole chunks, and nothing of the one under way.
TEST_P(PromptReaderTest, WhatIsCancelledKeepsWholeChunks) {
  EngineOptions options = small_steps();
  options.idle_step_seconds = 0.001;
  const auto server = engine(options);
  const auto prompt = bytes_of(some_text(0, 1200));
  submit(*server, prompt, 2);
  server->step();
  ASSERT_TRUE(server->reader().in_chunk());
  ActiveChoice& active = *server->choices().active().front();
  server->reader().leave(active);
  active.chunk_limit = 512;
  while (active.log.size() == 0 || server->reader().done() == 0) server->step();
  const int64_t whole = active.log.size();
  EXPECT_EQ(whole % kPageTokens, 0);
  EXPECT_LE(whole, 512);
  EXPECT_GT(server->computed(active), static_cast<double>(whole));
  const uint64_t used = server->runtime().memory().device_needed();
  server->cancel(last_id_);
  EXPECT_EQ(server->reader().choice(), nullptr);
  EXPECT_LE(server->runtime().memory().device_needed(), used);
  const auto again = submit(*server, prompt, 2);
  finish(*server);
  EXPECT_EQ(again->cached(), whole);
  const auto expected = by_step(prompt, 2);
  EXPECT_EQ(again->choices()[0].ids, expected.ids);
  EXPECT_EQ(again->choices()[0].logprobs, expected.logprobs);
}

// Others' memory comes first: the chunk is lost, and the next one is half as long, until the prompt
// is read by steps.
TEST_P(PromptReaderTest, AChunkGivesItsMemoryUp) {
  const auto expected = by_step(long_prompt_, 4);
  const auto server = engine();
  const auto recorder = submit(*server, long_prompt_, 4);
  int lost = 0;
  for (int i = 0; !server->idle(); ++i) {
    server->step();
    if (i % 3 == 2 && server->reader().give_up()) ++lost;
  }
  EXPECT_GE(lost, 2);
  EXPECT_EQ(recorder->choices()[0].ids, expected.ids);
  EXPECT_EQ(recorder->choices()[0].logprobs, expected.logprobs);
}

// Chunks come back, and grow again, with the tokens that are read after a loss.
TEST_P(PromptReaderTest, ChunksGrowAgain) {
  const auto prompt = bytes_of(some_text(0, 3000));
  const auto expected = by_step(prompt, 2);
  const auto server = engine();
  const auto recorder = submit(*server, prompt, 2);
  server->step();
  ActiveChoice& active = *server->choices().active().front();
  while (server->reader().give_up()) server->step();
  EXPECT_LT(active.chunk_limit, 256);  // a step came after the last loss
  while (active.at_prompt() && !server->reader().in_chunk()) server->step();
  ASSERT_TRUE(active.at_prompt());
  EXPECT_LT(active.log.size(), 1000);
  EXPECT_GE(active.chunk_limit, 128);
  finish(*server);
  EXPECT_EQ(recorder->choices()[0].ids, expected.ids);
  EXPECT_EQ(recorder->choices()[0].logprobs, expected.logprobs);
}

INSTANTIATE_TEST_SUITE_P(Devices, PromptReaderTest, ::testing::Values("cpu", "emulated"));

// Bytes that come back over the link while a long prompt is read.
uint64_t read_back(bool beside_a_stream) {
  ServedModel served;
  served.config.placement.hot_rows = 2 * kSet;
  SteppedEngine engine(LocalServer::open("emulated", {}), served,
                       {.prefill_chunk = 256, .max_step_seconds = 1e-9, .idle_step_seconds = 0.05});
  const auto stream = std::make_shared<Recorder>(), recorder = std::make_shared<Recorder>();
  if (beside_a_stream) {
    engine.submit(request(bytes_of("In the beginning"), 100'000, stream), 1);
    for (int i = 0; i < 3; ++i) engine.step();
  }
  engine.submit(request(bytes_of(some_text(0, 1000)), 1, std::make_shared<Recorder>()), 2);
  while (engine.stats().finished_length == 0) engine.step();
  engine.submit(request(bytes_of(some_text(0, 4000)), 1, recorder), 3);
  engine.runtime().reset_metrics();
  while (engine.stats().finished_length == 1) engine.step();
  EXPECT_EQ(recorder->cached(), 1000);
  return engine.runtime().metrics().bytes.prompt;
}

TEST(PromptReaderLink, RowsComeBackOnceWhateverRunsBeside) {
  const uint64_t alone = read_back(false);
  // The 16 pages of four layers, 2 heads x 128 dimensions in f32.
  EXPECT_EQ(alone, uint64_t{4} * 16 * 64 * 2 * 128 * 4);
  EXPECT_EQ(read_back(true), alone);
}

}  // namespace
}  // namespace fasa::serve
