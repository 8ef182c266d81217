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
                stream_.view());
    const LinearPart& part = state.part();
    EXPECT_EQ(part.position, length);
    if (part.position > 0) {
      EXPECT_EQ(part.state[0], mark(part.position));
    }
    std::memset(part.state, static_cast<int>(mark(part.position + tokens)),
                static_cast<size_t>(layout_.bytes()));
    if (part.saved != nullptr) {
      std::memset(part.saved, static_cast<int>(mark(part.saved_at)),
                  static_cast<size_t>(layout_.copied_bytes(0)));
    }
    state.commit();
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
  child.share(state, 32768, stream_.view());
  state.truncate(16384);
  EXPECT_THAT(tokens_of(state), ElementsAre(16384));
  step(state, 384, false);  // step() finds the state of 16384 in memory
  step(child, 64, false);
  EXPECT_THAT(tokens_of(child), ElementsAre(16384, 32768, 32832));
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
  EXPECT_THROW(child.share(state, 20001, stream_.view()), BudgetError);
}

TEST_F(LinearStateTest, AnAbortedStepLosesTheState) {
  open();
  LinearState state(*device_, layout_, rule_);
  step(state, 100, false);
  step(state, 1, true);
  state.begin({.position = 101, .tokens = 1, .decodes = true}, stream_.view());
  state.abort(101, false);
  EXPECT_THAT(tokens_of(state), ElementsAre(100, 101));
  state.begin({.position = 101, .tokens = 1, .decodes = true}, stream_.view());
  state.abort(101, true);
  EXPECT_THAT(tokens_of(state), ElementsAre(100));
  EXPECT_THROW(state.begin({.position = 101, .tokens = 1}, stream_.view()), UsageError);
  state.truncate(state.resume_point(101));
  step(state, 1, true);
}

}  // namespace
}  // namespace fasa
