// Answers generated from logits: where they end, and when their text is released.
#include "runtime/llm/generation/answer.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using namespace llm_test;

// Logits with this byte as the best token.
std::vector<float> logits_of(char byte) {
  std::vector<float> logits(256, 0);
  logits[static_cast<unsigned char>(byte)] = 5;
  return logits;
}

class AnswerTest : public ::testing::Test {
 protected:
  // The text released after each byte, in brackets, until the answer ends.
  std::string shown(Answer& answer, std::string_view bytes) {
    std::string all;
    for (const char byte : bytes) {
      const bool more = answer.take(logits_of(byte));
      all += "[" + std::string(answer.fresh()) + "]";
      if (!more) break;
    }
    return all;
  }
  const std::unique_ptr<text::Tokenizer> tokenizer_ =
      text::Tokenizer::load_if_present(bundled_dir());
  const std::vector<int32_t> eos_ = {0, '$'};
  const std::vector<int32_t> prompt_ = {'h', 'i'};
};

TEST_F(AnswerTest, AnyOfTheEndIdsEndsIt) {
  Answer answer({}, eos_, tokenizer_.get(), prompt_);
  EXPECT_EQ(shown(answer, "ab$c"), "[a][b][]");
  EXPECT_EQ(answer.end(), AnswerEnd::kEndOfSequence);
  EXPECT_EQ(answer.tokens(), (std::vector<int32_t>{'a', 'b'}));
}

TEST_F(AnswerTest, StopStringsSpanTokensAndHoldTextBack) {
  AnswerOptions options;
  options.stop = {"bcd"};
  Answer answer(options, eos_, tokenizer_.get(), prompt_);
  EXPECT_EQ(shown(answer, "abcabcde"), "[a][][][bca][][][]");
  EXPECT_EQ(answer.end(), AnswerEnd::kStopString);
  EXPECT_EQ(answer.text(), "abca");
  // The end releases the text that was held back.
  Answer ended(options, eos_, tokenizer_.get(), prompt_);
  EXPECT_EQ(shown(ended, "abc$"), "[a][][][bc]");
  EXPECT_EQ(ended.text(), "abc");
  options.max_tokens = 2;
  Answer cut(options, eos_, tokenizer_.get(), prompt_);
  EXPECT_EQ(shown(cut, "abc"), "[a][b]");
  EXPECT_EQ(cut.end(), AnswerEnd::kMaxTokens);
  options.max_tokens = 5;
  Answer cancelled(options, eos_, tokenizer_.get(), prompt_);
  EXPECT_EQ(shown(cancelled, "ab"), "[a][]");
  cancelled.cancel();
  EXPECT_EQ(cancelled.fresh(), "b");
  EXPECT_EQ(cancelled.end(), AnswerEnd::kCancelled);
}

TEST_F(AnswerTest, HalfCharactersWait) {
  Answer answer({}, eos_, tokenizer_.get(), prompt_);
  EXPECT_EQ(shown(answer, "\xc3\xa4x"), "[][\xc3\xa4][x]");
}

TEST_F(AnswerTest, LogprobsAreTheModelsOwn) {
  AnswerOptions options;
  options.logprobs = 1;
  options.sampling.logit_bias = {{'b', 100.0f}};
  Answer answer(options, eos_, nullptr, prompt_);
  answer.take(logits_of('a'));
  ASSERT_EQ(answer.logprobs().size(), 1u);
  EXPECT_EQ(answer.tokens()[0], 'b');
  EXPECT_EQ(answer.logprobs()[0].id, 'b');
  EXPECT_EQ(answer.logprobs()[0].top[0].first, 'a');
  EXPECT_NEAR(answer.logprobs()[0].top[0].second - answer.logprobs()[0].logprob, 5, 1e-9);
}

TEST_F(AnswerTest, WhatIsChosenBeforeIsTaken) {
  AnswerOptions options;
  options.logprobs = 1;
  options.max_tokens = 40;
  options.sampling.seed = 3;
  options.sampling.temperature = 2;
  options.sampling.presence_penalty = 0.5;
  Answer plain(options, eos_, tokenizer_.get(), prompt_);
  Answer chosen(options, eos_, tokenizer_.get(), prompt_);
  for (bool more = true; more;) {
    const std::vector<float> logits = logits_of('a');
    chosen.choose(logits);
    more = plain.take(logits);
    EXPECT_EQ(chosen.take(logits), more);
  }
  EXPECT_EQ(chosen.tokens(), plain.tokens());
  EXPECT_EQ(chosen.text(), plain.text());
  EXPECT_EQ(chosen.logprobs().back().logprob, plain.logprobs().back().logprob);
}

TEST_F(AnswerTest, ImpossibleOptions) {
  AnswerOptions options;
  options.stop = {"x"};
  EXPECT_THROW(Answer(options, eos_, nullptr, prompt_), UsageError);
  EXPECT_THROW(Answer({.max_tokens = 0}, eos_, nullptr, prompt_), UsageError);
  EXPECT_THROW(Answer({.logprobs = 1000}, eos_, nullptr, prompt_), UsageError);
}

}  // namespace
}  // namespace fasa
