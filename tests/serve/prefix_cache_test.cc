// The cached sequences that a prompt can continue.
#include "runtime/serve/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/serve/local_server.h"

namespace fasa::serve {
namespace {

class PrefixCacheTest : public ::testing::Test {
 protected:
  // A log of tokens 0, 1, ...; the tokens from `sampled` on came from decode steps.
  static TokenLog log_of(int64_t tokens, int64_t sampled) {
    TokenLog log;
    for (int64_t i = 0; i < tokens; ++i) {
      log.append(static_cast<int32_t>(i), i < sampled ? Computed::kPrefill : Computed::kDecode);
    }
    return log;
  }
  static std::vector<int32_t> prompt_of(int64_t tokens) {
    const TokenLog log = log_of(tokens, tokens);
    return {log.ids().begin(), log.ids().end()};
  }
  PrefixCache& cache() { return cache_; }
  SequenceId sequence() { return runtime_.create(); }

 private:
  std::unique_ptr<Device> device_ = LocalServer::open("cpu", {});
  Model model_ = Model::load(llm_test::bundled_dir(), *device_, std::nullopt);
  Runtime runtime_{*device_, sparse_config(), model_.config().geometry(), model_.dtype(),
                   all_slice_dims(model_.config().geometry())};
  PrefixCache cache_{runtime_, 1 << 20};
};

TEST_F(PrefixCacheTest, TheLongestThatIsLessThanThePrompt) {
  cache().insert({.salt = "a", .log = log_of(50, 50)}, SuspendedPrefix{.session = 1});
  cache().insert({.salt = "a", .log = log_of(100, 80)}, SuspendedPrefix{.session = 2});
  cache().insert({.salt = "b", .log = log_of(120, 120)}, SuspendedPrefix{.session = 3});
  const PrefixMatch match = cache().find("a", prompt_of(90));
  EXPECT_EQ(match.known.size(), 89);
  EXPECT_EQ(match.known.computed(85), Computed::kDecode);
  ASSERT_TRUE(match.suspended);
  EXPECT_EQ(match.suspended->session, 2u);
  EXPECT_EQ(match.suspended->tokens, 89);
  EXPECT_FALSE(cache().find("c", prompt_of(90)).suspended);
}

// A request continues the sequence that it began, even if another one has computed the same tokens
// since.
TEST_F(PrefixCacheTest, ARequestKeepsToWhatItKnows) {
  cache().insert({.salt = "a", .log = log_of(100, 30)}, SuspendedPrefix{.session = 1});
  const PrefixMatch match = cache().find("a", prompt_of(120), log_of(40, 40));
  EXPECT_EQ(match.known.size(), 40);
  EXPECT_EQ(match.known.computed(35), Computed::kPrefill);
  ASSERT_TRUE(match.suspended);
  EXPECT_EQ(match.suspended->tokens, 30);  // later tokens were computed in another way
}

// What takes longest to compute again, by the byte, is freed last; turns that a conversation had
// count, and the time since.
TEST_F(PrefixCacheTest, ALongConversationOutlivesShortRequests) {
  const uint64_t conversation =
      cache().insert({.salt = "a", .log = log_of(4000, 4000)}, sequence());
  for (int i = 0; i < 10; ++i) {
    const uint64_t title =
        cache().insert({.salt = std::to_string(i), .log = log_of(900, 900)}, sequence());
    const CachedSession* const least = cache().cheapest();
    ASSERT_EQ(least->id, title) << i;
    EXPECT_NE(least->id, conversation);
    ASSERT_TRUE(cache().forget(title));
  }
}

TEST_F(PrefixCacheTest, AConversationOfSeveralTurnsIsWorthMore) {
  cache().insert({.salt = "a", .log = log_of(900, 900)}, sequence());
  cache().insert({.salt = "a", .log = log_of(950, 900)}, sequence());
  const uint64_t other = cache().insert({.salt = "b", .log = log_of(950, 950)}, sequence());
  EXPECT_EQ(cache().cheapest()->id, other);
}

}  // namespace
}  // namespace fasa::serve
