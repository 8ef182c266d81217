// Token ids that prompts take over from texts that were answered before.
#include "runtime/serve/known_texts.h"

#include <gtest/gtest.h>

#include "runtime/text/tokenizer.h"

namespace fasa::serve {
namespace {

using Ids = std::vector<int32_t>;

constexpr int32_t kA = 0, kB = 1, kAb = 2, kUser = 3, kEnd = 4;

// Byte-level: a, b, "ab" by a merge; two control tokens.
constexpr const char* kTokenizer = R"({
  "version": "1.0",
  "added_tokens": [{"id": 3, "content": "<user>", "normalized": false, "special": true},
                   {"id": 4, "content": "<end>", "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "post_processor": null,
  "decoder": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

class KnownTextsTest : public ::testing::Test {
 protected:
  Ids found(const char* salt, const char* prompt, size_t bytes) {
    const KnownTexts::Beginning beginning = known_.find(salt, prompt);
    EXPECT_EQ(beginning.bytes, bytes) << prompt;
    return {beginning.ids.begin(), beginning.ids.end()};
  }
  KnownTexts& known() { return known_; }

 private:
  text::Tokenizer tokenizer_ = text::Tokenizer::parse(kTokenizer, "", "test");
  KnownTexts known_{1 << 20, tokenizer_};
};

// The model wrote "ab" as two tokens.
const Ids kIds = {kUser, kAb, kEnd, kA, kB, kEnd, kUser, kA};
constexpr const char* kText = "<user>ab<end>ab<end><user>a";

TEST_F(KnownTextsTest, AWholeTextThatIsContinued) {
  known().remember("s", kText, kIds);
  EXPECT_EQ(found("s", "<user>ab<end>ab<end><user>a<end>", 27), kIds);
  EXPECT_EQ(found("t", "<user>ab<end>ab<end><user>a<end>", 0), Ids());
}

TEST_F(KnownTextsTest, ThePartBeforeTheLastControlTokenThatBothHave) {
  known().remember("s", kText, kIds);
  const Ids upto_user = {kUser, kAb, kEnd, kA, kB, kEnd};
  EXPECT_EQ(found("s", "<user>ab<end>ab<end><user>bb", 20), upto_user);
  EXPECT_EQ(found("s", "<user>ab<end>ab<end><us", 15), Ids({kUser, kAb, kEnd, kA, kB}));
  EXPECT_EQ(found("s", "<user>ab<end>b", 8), Ids({kUser, kAb}));
  EXPECT_EQ(found("s", "<user>b", 0), Ids());
}

TEST_F(KnownTextsTest, TheLongestOfSeveral) {
  known().remember("s", "<user>a<end>bb", {kUser, kA, kEnd, kB, kB});
  known().remember("s", kText, kIds);
  EXPECT_EQ(found("s", "<user>a<end>bb<end>", 14), Ids({kUser, kA, kEnd, kB, kB}));
  EXPECT_EQ(found("s", "<user>ab<end>b", 8), Ids({kUser, kAb}));
}

// Where ids do not spell the text, nothing is cut behind.
TEST_F(KnownTextsTest, IdsThatSpellSomethingElse) {
  known().remember("s", "<user>ba<end>ab<end>", {kUser, kAb, kEnd, kA, kB, kEnd});
  EXPECT_EQ(found("s", "<user>ba<end>bb", 0), Ids());
}

}  // namespace
}  // namespace fasa::serve
