// A sequence's state of layers with linear attention: when snapshots are taken, and what is in
// memory after the sequence went back to one. The test writes states itself.
#include "scheduler/cache/linear_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "offload/open_device.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

using ::testing::ElementsAre;

constexpr LinearShape kShape{
    .layers = 3, .key_heads = 1, .value_heads = 2, .key_dim = 5, .value_dim = 7, .taps = 3};

class LinearStateTest : public ::testing::Test {
 protected:
  void open(const char* name = "cpu", std::optional<uint64_t> host_memory = {}) {
    DeviceOptions options;
    options.name = name;
    options.host_memory = host_memory;
    stream_ = {};
    device_ = open_device(options);
    stream_ = device_->create_stream(StreamPriority::kNormal, "test");
  }
  // Every byte of a state after `tokens` tokens.
  static std::byte mark(int64_t tokens) { return static_cast<std::byte>(1 + tokens % 251); }
  void step(LinearState& state, int64_t tokens, bool decodes, int64_t rollback_tokens = -1) {
    state.reserve();
    const int64_t length = state.resume_point(INT64_MAX);
    state.begin({.position = length,
                 .tokens = tokens,
                 .decodes = decodes,
                 .rollback_tokens = rollback_tokens},
                stream_);
    compute(state, length, tokens);
    state.commit(tokens);
  }
  // What kernels do with the step that has begun.
  void compute(const LinearState& state, int64_t length, int64_t tokens) {
    int64_t at = length;
    for (const LinearPart& part : state.parts(0, tokens, 5)) {
      EXPECT_EQ(part.position, at);
      EXPECT_EQ(part.first, 5 + at - length);
      if (part.position > 0) {
        EXPECT_EQ(part.state[0], mark(part.position));
      }
      at += part.tokens;
      std::memset(part.state, static_cast<int>(mark(at)), static_cast<size_t>(layout_.bytes()));
      if (part.saved == nullptr) continue;
      EXPECT_GT(part.saved_at, part.position);
      EXPECT_LE(part.saved_at, at);
      std::memset(part.saved, static_cast<int>(mark(part.saved_at)),
                  static_cast<size_t>(layout_.copied_bytes(0)));
    }
    EXPECT_EQ(at, length + tokens);
  }
  static std::vector<int64_t> tokens_of(const LinearState& state) {
    std::vector<int64_t> tokens;
    for (const StatePoint& point : state.points()) tokens.push_back(point.tokens);
    return tokens;
  }

  const LinearLayout layout_{kShape};
  const SnapshotRule rule_ = {};  // as by default: every 16,384 tokens, two turns
  std::unique_ptr<Device> device_;
  Stream stream_;
};

TEST_F(LinearStateTest, SnapshotsAreTakenAtIntervals) {
  open();
  LinearState state(*device_, layout_, rule_);
  for (int chunk = 0; chunk < 8; ++chunk) step(state, 5000, false);
  EXPECT_THAT(tokens_of(state), ElementsAre(16384, 32768, 40000));
  EXPECT_EQ(state.resume_point(39999), 32768);
  EXPECT_EQ(state.resume_point(32767), 16384);
  EXPECT_EQ(state.resume_point(16383), 0);
  LinearState child(*device_, layout_, rule_);
  child.share(state, 32768, stream_);
  state.truncate(16384);
  EXPECT_THAT(tokens_of(state), ElementsAre(16384));
  step(state, 384, false);  // step() finds the state of 16384 in memory
  step(child, 64, false);
  EXPECT_THAT(tokens_of(child), ElementsAre(16384, 32768, 32832));
}

TEST_F(LinearStateTest, AStepTakesEverySnapshotThatItPasses) {
  open();
  LinearState state(*device_, layout_, rule_);
  step(state, 100, false);
  step(state, 70'000, false);
  EXPECT_THAT(tokens_of(state), ElementsAre(16384, 32768, 49152, 65536, 70100));
  state.truncate(32768);
  step(state, 32768, false);  // ends at one
  EXPECT_THAT(tokens_of(state), ElementsAre(16384, 32768, 49152, 65536));
  LinearState window(*device_, layout_, rule_);
  step(window, 70'000, false, 20'000);
  EXPECT_THAT(tokens_of(window), ElementsAre(49152, 65536, 70000));
}

// Pieces of a chunk: each has the parts of its tokens.
TEST_F(LinearStateTest, PartsOfPieces) {
  open();
  const SnapshotRule rule = {.interval = 128};
  LinearState state(*device_, layout_, rule);
  step(state, 70, false);
  state.begin({.position = 70, .tokens = 400, .undoable = true}, stream_);
  const auto parts = state.parts(10, 300, 0);  // tokens 80 to 370
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].wave, 0);
  EXPECT_EQ(parts[0].position, 80);
  EXPECT_EQ(parts[0].open, 16);
  EXPECT_EQ(parts[0].tokens, 48);
  EXPECT_EQ(parts[0].saved_at, 128);
  EXPECT_EQ(parts[1].wave, 1);
  EXPECT_EQ(parts[1].first, 48);
  EXPECT_EQ(parts[1].open, 0);
  EXPECT_EQ(parts[1].tokens, 242);
  EXPECT_EQ(parts[1].saved_at, 256);
  EXPECT_EQ(state.parts(300, 310, 0).front().saved, nullptr);
}

TEST_F(LinearStateTest, AnUndoableStepLeavesTheStateBefore) {
  for (const bool computed : {false, true}) {
    open("emulated");
    LinearState state(*device_, layout_, rule_);
    step(state, 100, false);
    step(state, 7, true);
    state.begin({.position = 107, .tokens = 40'000, .undoable = true}, stream_);
    EXPECT_THAT(tokens_of(state), ElementsAre(100, 107));
    if (computed) compute(state, 107, 40'000);
    state.abort(107, computed);
    EXPECT_THAT(tokens_of(state), ElementsAre(100, 107));
    step(state, 20, true);
    EXPECT_THAT(tokens_of(state), ElementsAre(100, 107, 127));
  }
}

TEST_F(LinearStateTest, DecodedTokensPassAnIntervalToo) {
  open();
  LinearState state(*device_, layout_, rule_);
  step(state, 16380, false);
  for (int i = 0; i < 10; ++i) step(state, 1, true);
  EXPECT_THAT(tokens_of(state), ElementsAre(16380, 16384, 16390));
  // Ends of turns give way, intervals do not.
  for (int turn = 0; turn < 3; ++turn) {
    step(state, 5, false);
    step(state, 1, true);
  }
  EXPECT_THAT(tokens_of(state), ElementsAre(16384, 16402, 16407, 16408));
}

TEST_F(LinearStateTest, ARollbackWindowNeedsOneSnapshotBeforeIt) {
  open();
  LinearState state(*device_, layout_, rule_);
  for (int chunk = 0; chunk < 4; ++chunk) step(state, 16384, false, 2048);
  step(state, 3000, false, 2048);
  step(state, 1, true, 2048);
  EXPECT_THAT(tokens_of(state), ElementsAre(65536, 68536, 68537));
}

// A step is not refused because the host has no memory for a snapshot.
TEST_F(LinearStateTest, WithoutHostMemoryThereAreNoSnapshots) {
  open("emulated", 1024);
  LinearState state(*device_, layout_, rule_);
  step(state, 20000, false);
  step(state, 1, true);
  EXPECT_THAT(tokens_of(state), ElementsAre(20001));
  EXPECT_EQ(state.resume_point(20000), 0);
  LinearState child(*device_, layout_, rule_);
  EXPECT_THROW(child.share(state, 20001, stream_), BudgetError);
}

// Drafts behind the first token of a decode step: those that stay wait, and are part of states.
TEST_F(LinearStateTest, DraftsWaitUntilTheNextStep) {
  open();
  LinearState state(*device_, layout_, rule_);
  const auto decode = [&](LinearState& of, int64_t tokens, int64_t kept) {
    const int64_t length = of.resume_point(INT64_MAX);
    of.reserve();
    of.begin({.position = length, .tokens = tokens, .decodes = true}, stream_);
    const LinearPart part = of.parts(0, tokens, 0).front();
    of.commit(kept);
    return part;
  };
  EXPECT_EQ(state.max_drafted(), 16);
  step(state, 100, false);
  EXPECT_EQ(state.max_drafted(), 1);  // tokens would wait where the open block is
  EXPECT_EQ(decode(state, 20, 20).drafts, 0);
  EXPECT_EQ(state.max_drafted(), 16);
  EXPECT_EQ(decode(state, 17, 17).drafts, 0);
  LinearPart part = decode(state, 16, 9);
  EXPECT_EQ(part.waiting, 0);
  EXPECT_EQ(part.drafts, 15);
  const StatePoint end = state.points().back();
  EXPECT_EQ(end, (StatePoint{146, 8, true, static_cast<uint64_t>(layout_.bytes())}));
  LinearState child(*device_, layout_, rule_);
  child.share(state, 146, stream_);
  part = decode(child, 4, 1);
  EXPECT_EQ(part.waiting, 8);
  EXPECT_EQ(part.drafts, 3);
  EXPECT_EQ(child.points().back().open, 0);
  // Prefilled tokens begin a block behind them.
  state.begin({.position = 146, .tokens = 50}, stream_);
  EXPECT_EQ(state.parts(0, 50, 0).front().waiting, 8);
  EXPECT_EQ(state.parts(0, 50, 0).front().open, 0);
  EXPECT_EQ(state.parts(30, 50, 0).front().waiting, 0);
  EXPECT_EQ(state.parts(30, 50, 0).front().open, 30);
  state.commit(50);
  EXPECT_EQ(state.points().back().open, 4);
  state.truncate(146);  // the snapshot at the end of the turn
  EXPECT_EQ(decode(state, 1, 1).waiting, 8);
}

TEST_F(LinearStateTest, AnAbortedStepLosesTheState) {
  open();
  LinearState state(*device_, layout_, rule_);
  step(state, 100, false);
  step(state, 1, true);
  state.begin({.position = 101, .tokens = 1, .decodes = true}, stream_);
  state.abort(101, false);
  EXPECT_THAT(tokens_of(state), ElementsAre(100, 101));
  state.begin({.position = 101, .tokens = 1, .decodes = true}, stream_);
  state.abort(101, true);
  EXPECT_THAT(tokens_of(state), ElementsAre(100));
  EXPECT_THROW(state.begin({.position = 101, .tokens = 1}, stream_), UsageError);
  state.truncate(state.resume_point(101));
  step(state, 1, true);
}

}  // namespace
}  // namespace fasa
