// Token ids that prompts take over from texts that were answered before.
#include "runtime/serve/known_texts.h"

#include <gtest/gtest.h>

#include <utility>

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
    const KnownText* const known = known_.find(salt, prompt);
    KnownBeginning same;
    if (known != nullptr) same = known_beginning(*known, prompt, end_of_);
    EXPECT_EQ(same.bytes, bytes) << prompt;
    in_prompt_ = same.prompt_bytes;
    return known == nullptr
               ? Ids()
               : Ids(known->ids.begin(), known->ids.begin() + std::ptrdiff_t(same.ids));
  }
  KnownText known(const char* text, Ids ids) { return {tokenizer_, "s", text, std::move(ids)}; }
  void remember(KnownText text) { known_.remember(std::move(text)); }
  void remember(const char* text, Ids ids) {
    remember(KnownText(tokenizer_, "s", text, std::move(ids)));
  }

  size_t in_prompt_ = 0;
  EndOfAnswer end_of_ = [](const KnownAnswer&) { return size_t{0}; };

 private:
  text::Tokenizer tokenizer_ = text::Tokenizer::parse(kTokenizer, "", "test");
  KnownTexts known_{1 << 20};
};

// The model wrote "ab" as two tokens.
const Ids kIds = {kUser, kAb, kEnd, kA, kB, kEnd, kUser, kA};
constexpr const char* kText = "<user>ab<end>ab<end><user>a";

TEST_F(KnownTextsTest, AWholeTextThatIsContinued) {
  remember(kText, kIds);
  EXPECT_EQ(found("s", "<user>ab<end>ab<end><user>a<end>", 27), kIds);
  EXPECT_EQ(found("t", "<user>ab<end>ab<end><user>a<end>", 0), Ids());
}

TEST_F(KnownTextsTest, ThePartBeforeTheLastControlTokenThatBothHave) {
  remember(kText, kIds);
  const Ids upto_user = {kUser, kAb, kEnd, kA, kB, kEnd};
  EXPECT_EQ(found("s", "<user>ab<end>ab<end><user>bb", 20), upto_user);
  EXPECT_EQ(found("s", "<user>ab<end>ab<end><us", 15), Ids({kUser, kAb, kEnd, kA, kB}));
  EXPECT_EQ(found("s", "<user>ab<end>b", 8), Ids({kUser, kAb}));
  EXPECT_EQ(found("s", "<user>b", 0), Ids());
}

TEST_F(KnownTextsTest, TheLongestOfSeveral) {
  remember("<user>a<end>bb", {kUser, kA, kEnd, kB, kB});
  remember(kText, kIds);
  EXPECT_EQ(found("s", "<user>a<end>bb<end>", 14), Ids({kUser, kA, kEnd, kB, kB}));
  EXPECT_EQ(found("s", "<user>ab<end>b", 8), Ids({kUser, kAb}));
}

// Where ids do not spell the text, nothing is cut behind.
TEST_F(KnownTextsTest, IdsThatSpellSomethingElse) {
  remember("<user>ba<end>ab<end>", {kUser, kAb, kEnd, kA, kB, kEnd});
  EXPECT_EQ(found("s", "<user>ba<end>bb", 0), Ids());
}

// Answers "ab" and "ba" with calls that the prompt spells as "b" and "aab".
TEST_F(KnownTextsTest, CallsThatThePromptSpellsInAnotherWay) {
  KnownText text = known("<user><user>ab<end>a<user>ba<end>",
                         {kUser, kUser, kA, kB, kEnd, kA, kUser, kB, kA, kEnd});
  text.answers = {{.begin = 12, .end = 14, .said = 12, .content = "1", .calls = {}},
                  {.begin = 26, .end = 28, .said = 26, .content = "2", .calls = {}}};
  remember(std::move(text));
  const char* const prompt = "<user><user>b<end>a<user>aab<end>b";
  EXPECT_EQ(found("s", prompt, 6), Ids({kUser}));
  size_t second = 28;
  end_of_ = [&](const KnownAnswer& answer) { return answer.content == "1" ? 13 : second; };
  EXPECT_EQ(found("s", prompt, 33), Ids({kUser, kUser, kA, kB, kEnd, kA, kUser, kB, kA, kEnd}));
  EXPECT_EQ(in_prompt_, 33u);
  second = 0;  // it is another one
  EXPECT_EQ(found("s", prompt, 20), Ids({kUser, kUser, kA, kB, kEnd, kA}));
  EXPECT_EQ(in_prompt_, 19u);
}

}  // namespace
}  // namespace fasa::serve
