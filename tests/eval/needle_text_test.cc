#include "runtime/eval/tasks/needle_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/base/error.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kJson = R"({"fact": "[{key}={value}]", "question": "?{key}",
  "answer_ends_with": ".", "value": {"kind": "digits", "length": 3}, "keys": ["a", "b", "c"]})";

std::string error_of(const std::string& json) {
  try {
    NeedleTemplate::parse(json, "n.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(NeedleTemplate, FillsInKeyAndValue) {
  const auto needle = NeedleTemplate::parse(kJson, "n.json");
  const NeedleFact fact = needle.fact("b", "042");
  EXPECT_EQ(fact.statement, "[b=042]");
  EXPECT_EQ(fact.question, "?b");
  EXPECT_EQ(fact.answer, "042");
  EXPECT_EQ(fact.written, "042.");
  EXPECT_EQ(NeedleTemplate::built_in().fact("Oslo", "17").written, " 17.") << "behind a word";
}

TEST(NeedleTemplate, DrawsDifferentKeysTheSameForASeed) {
  const auto needle = NeedleTemplate::parse(kJson, "n.json");
  std::mt19937_64 first(7), again(7);
  const auto facts = needle.draw(3, first);
  std::set<std::string> questions;
  for (const NeedleFact& fact : facts) {
    questions.insert(fact.question);
    EXPECT_EQ(fact.answer.size(), 3);
  }
  EXPECT_EQ(questions.size(), 3);
  EXPECT_EQ(needle.draw(3, again)[2].statement, facts[2].statement);
  EXPECT_THROW(needle.draw(4, first), UsageError);
}

TEST(NeedleTemplate, AnAnswerIsRightUpToItsEnd) {
  const auto needle = NeedleTemplate::parse(kJson, "n.json");
  EXPECT_TRUE(needle.is_right("042. And so on", "042"));
  EXPECT_TRUE(needle.is_right(" \n042", "042"));
  EXPECT_FALSE(needle.is_right("0421.", "042"));
  EXPECT_FALSE(needle.is_right("", "042"));
  EXPECT_FALSE(needle.is_right(".042", "042"));
  EXPECT_TRUE(needle.is_complete(" 042."));
  EXPECT_FALSE(needle.is_complete(" 042"));
}

TEST(NeedleTemplate, TheBuiltInOneIsOfTheSameFormat) {
  const auto needle = NeedleTemplate::built_in();
  EXPECT_GE(needle.keys().size(), 8);
  const NeedleFact fact = needle.fact("Oslo", "1234567");
  EXPECT_THAT(fact.statement, HasSubstr("Oslo is 1234567"));
  EXPECT_TRUE(needle.is_right(" 1234567.", fact.answer));
}

TEST(NeedleTemplate, BadOnesSayWhere) {
  EXPECT_THAT(error_of("{"), HasSubstr("n.json"));
  EXPECT_THAT(error_of("{}"), HasSubstr("fact"));
  const auto without = [](const std::string& from, const std::string& to) {
    std::string json(kJson);
    return json.replace(json.find(from), from.size(), to);
  };
  EXPECT_THAT(error_of(without("{value}]", "]")), HasSubstr("{value}"));
  EXPECT_THAT(error_of(without("?{key}", "?")), HasSubstr("question"));
  EXPECT_THAT(error_of(without("digits", "words")), HasSubstr("value.kind"));
  EXPECT_THAT(error_of(without("\"length\": 3", "\"length\": 0")), HasSubstr("value.length"));
  EXPECT_THAT(error_of(without("[\"a\", \"b\", \"c\"]", "[1]")), HasSubstr("keys"));
  EXPECT_THAT(error_of(without("[\"a\", \"b\", \"c\"]", "[]")), HasSubstr("keys"));
}

TEST(Plant, FactsStandWhereTheyWerePut) {
  const NeedleFact a{"[A]", "", ""}, b{"[B]", "", ""}, c{"[C]", "", ""};
  const std::vector<PlantedFact> facts = {{b, 4}, {a, 0}, {c, 99}};
  EXPECT_EQ(plant("one two", facts), "[A]one [B]two[C]");
  const std::vector<PlantedFact> same = {{b, 3}, {a, 3}};
  EXPECT_EQ(plant("one two", same), "one[B][A] two");
}

TEST(WordStart, IsNoPlaceWithinAWord) {
  EXPECT_EQ(word_start("one two", 5), 3);
  EXPECT_EQ(word_start("one two", 3), 3);
  EXPECT_EQ(word_start("one two", 2), 2) << "no blank before";
  EXPECT_EQ(word_start("one two", 7), 7);
  EXPECT_EQ(word_start(" " + std::string(1000, 'x'), 900), 900) << "none within reach";
}

}  // namespace
}  // namespace fasa
