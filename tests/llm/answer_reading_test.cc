// Answers taken apart while they are generated: marks that are tokens, stop strings, grammars of
// calls that the model may make.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/llm/generation/answer.h"
#include "runtime/text/answer/call_grammar.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using namespace llm_test;
using text::AnswerPiece;

constexpr int32_t kThink = 256, kThought = 257, kCall = 258, kCallEnd = 259, kEnd = 260,
                  kChannel = 261, kChannelEnd = 262;

// The bundled tokenizer, where a byte is a token, with marks as tokens.
text::Tokenizer marked_tokenizer() {
  auto json = nlohmann::json::parse(read_file(bundled_dir() + "/tokenizer.json"));
  json["added_tokens"] = nlohmann::json::array();
  int id = kThink;
  for (const char* const mark : {"<think>", "</think>", "<tool_call>", "</tool_call>",
                                 "<|observation|>", "<|channel>", "<channel|>"}) {
    json["added_tokens"].push_back({{"id", id},
                                    {"content", mark},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", id++ % 2 == 0}});
  }
  return text::Tokenizer::parse(json.dump(), "", "marked");
}

class AnswerReadingTest : public ::testing::Test {
 protected:
  std::shared_ptr<text::AnswerReading> reading(const char* format) {
    return std::make_shared<text::AnswerReading>(text::AnswerReading{
        .format = std::make_shared<const text::CodedFormat>(*text::find_answer_format(format),
                                                            tokenizer_),
        .functions = {{"f", nlohmann::ordered_json::parse(
                                R"({"type": "object", "properties": {"a": {"enum": ["bc"]}},
                                    "required": ["a"]})")}}});
  }
  // Feeds tokens as the best ones; false: the answer has ended.
  bool take(Answer& answer, int32_t token) {
    std::vector<float> logits(263, 0);
    logits[static_cast<size_t>(token)] = 5;
    const bool more = answer.take(logits);
    for (const AnswerPiece& piece : answer.pieces()) {
      (piece.kind == AnswerPiece::Kind::kContent     ? content_
       : piece.kind == AnswerPiece::Kind::kReasoning ? reasoning_
                                                     : call_) += piece.text;
      whole_ |= piece.whole;
    }
    return more;
  }
  bool take(Answer& answer, std::string_view text) {
    for (const char byte : text) {
      if (!take(answer, static_cast<unsigned char>(byte))) return false;
    }
    return true;
  }

  const text::Tokenizer tokenizer_ = marked_tokenizer();
  const std::vector<int32_t> eos_ = {0};
  const std::vector<int32_t> prompt_ = {'h', 'i'};
  std::string content_, reasoning_, call_;
  bool whole_ = false;
};

TEST_F(AnswerReadingTest, TheTokenIsTheMark) {
  AnswerOptions options;
  options.reading = reading("hermes");
  Answer answer(options, eos_, &tokenizer_, prompt_);
  EXPECT_TRUE(take(answer, kThink));
  EXPECT_TRUE(take(answer, "A </think> is spelt <tool_call>."));
  EXPECT_TRUE(take(answer, kThought));
  EXPECT_TRUE(take(answer, "Yes: <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"));
  EXPECT_FALSE(take(answer, 0));
  EXPECT_EQ(reasoning_, "A </think> is spelt <tool_call>.");
  EXPECT_EQ(content_, "Yes: <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
  EXPECT_EQ(call_, "");
  EXPECT_GT(answer.reasoning_tokens(), 20);
}

// A thought may begin behind content, by a token and the text behind it.
TEST_F(AnswerReadingTest, ThoughtsBehindContent) {
  AnswerOptions options;
  options.reading = reading("gemma-pairs");
  Answer answer(options, eos_, &tokenizer_, prompt_);
  EXPECT_TRUE(take(answer, "The mark <|channel>thought "));
  EXPECT_TRUE(take(answer, kChannel));
  EXPECT_TRUE(take(answer, "thought\nHm."));
  EXPECT_TRUE(take(answer, kChannelEnd));
  EXPECT_TRUE(take(answer, "is one. "));
  EXPECT_TRUE(take(answer, kChannel));
  EXPECT_TRUE(take(answer, "is not."));
  EXPECT_TRUE(take(answer, kChannelEnd));  // of no thought
  EXPECT_FALSE(take(answer, 0));
  EXPECT_EQ(content_, "The mark <|channel>thoughtis one. <|channel>is not.");
  EXPECT_EQ(reasoning_, "Hm.");
}

TEST_F(AnswerReadingTest, AThoughtThatIsTooLongIsEnded) {
  for (const int64_t budget : {3, 0}) {
    reasoning_.clear(), content_.clear();
    AnswerOptions options;
    options.reasoning_budget = budget;
    options.reading = reading("hermes");
    Answer answer(options, eos_, &tokenizer_, prompt_);
    EXPECT_TRUE(take(answer, kThink));
    EXPECT_TRUE(take(answer, std::string("abc").substr(0, static_cast<size_t>(budget))));
    EXPECT_TRUE(take(answer, 'd'));
    EXPECT_EQ(answer.tokens().back(), kThought);
    EXPECT_TRUE(take(answer, "xy"));
    EXPECT_FALSE(take(answer, 0));
    EXPECT_EQ(reasoning_, budget == 0 ? "" : "abc");
    EXPECT_EQ(content_, "xy");
    EXPECT_EQ(answer.reasoning_tokens(), budget + 1) << "with the mark";
  }
}

TEST_F(AnswerReadingTest, StopStringsActOnContent) {
  AnswerOptions options;
  options.reading = reading("hermes");
  options.stop = {"bc"};
  Answer answer(options, eos_, &tokenizer_, prompt_);
  EXPECT_TRUE(take(answer, kThink));
  EXPECT_TRUE(take(answer, "abcd"));
  EXPECT_TRUE(take(answer, kThought));
  EXPECT_TRUE(take(answer, "ab"));
  EXPECT_TRUE(take(answer, kCall));
  EXPECT_TRUE(take(answer, "{\"name\": \"f\", \"arguments\": {\"a\": \"bc\"}}"));
  EXPECT_TRUE(take(answer, kCallEnd));
  EXPECT_FALSE(take(answer, "abcd"));
  EXPECT_EQ(answer.end(), AnswerEnd::kStopString);
  EXPECT_EQ(reasoning_, "abcd");
  EXPECT_EQ(content_, "aba");
  EXPECT_EQ(call_, "f{\"a\": \"bc\"}");
  EXPECT_TRUE(whole_);
}

TEST_F(AnswerReadingTest, EndsOfTheFormat) {
  for (const char* const format : {"hermes", "glm-names"}) {
    AnswerOptions options;
    options.reading = reading(format);
    Answer answer(options, eos_, &tokenizer_, prompt_);
    EXPECT_TRUE(take(answer, "a"));
    EXPECT_EQ(take(answer, kEnd), format == std::string("hermes"));
  }
}

// The grammar begins at the mark, whatever the model prefers, and ends with the call; text outside
// of calls asks it for nothing.
TEST_F(AnswerReadingTest, OptionalCallsKeepToTheirGrammar) {
  AnswerOptions options;
  options.max_tokens = 400;
  const auto read = reading("hermes");
  options.reading = read;
  text::ByteGrammar rules;
  rules.seal(text::CallGrammar(rules, *read->format, false).behind_mark(read->functions, false));
  std::map<int32_t, std::string> given;
  for (const auto& mark : read->format->codes.marks()) given[mark.id] = mark.code;
  options.grammar = std::make_shared<text::TokenGrammar>(
      std::move(rules), std::make_shared<text::TokenTable>(tokenizer_, given));
  options.grammar_of_calls = true;
  const size_t idle = options.grammar->bytes();
  Answer answer(options, eos_, &tokenizer_, prompt_);
  EXPECT_TRUE(take(answer, "free text, quoting </tool_call> too"));
  EXPECT_EQ(options.grammar->bytes(), idle);
  EXPECT_TRUE(take(answer, kCall));
  for (int i = 0; i < 200 && answer.tokens().back() != kCallEnd; ++i) {
    EXPECT_TRUE(take(answer, 'b'));
  }
  EXPECT_EQ(answer.tokens().back(), kCallEnd);
  EXPECT_TRUE(whole_);
  const auto call = nlohmann::json::parse(call_.substr(1));
  EXPECT_EQ(call["a"], "bc");
  EXPECT_TRUE(take(answer, "b free again"));
  EXPECT_FALSE(take(answer, 0));
  EXPECT_EQ(content_, "free text, quoting </tool_call> toob free again");
}

}  // namespace
}  // namespace fasa
