// Generated texts and questions: they fit their context, hold what is asked for, and their right
// answers score full points.
#include "runtime/eval/tasks/drawn_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;

class DrawnTaskTest : public ::testing::Test {
 protected:
  DrawnTask task(const DrawnKind& kind, int64_t context, DrawnOptions options = {}) const {
    options.question.context = context;
    return {kind, read_eval_texts({source_path("models/texts/ruth.txt")}, tokenizer_.get()),
            *tokenizer_, options};
  }
  std::vector<const DrawnKind*> kinds() const {
    std::vector<const DrawnKind*> all{&extract_kind()};
    for (const DrawnKind& kind : retrieval_kinds()) all.push_back(&kind);
    return all;
  }

  std::unique_ptr<text::Tokenizer> tokenizer_ =
      text::Tokenizer::load_if_present(llm_test::bundled_dir());
};

TEST_F(DrawnTaskTest, TextsFillTheirContextAndRightAnswersScoreAll) {
  for (const DrawnKind* kind : kinds()) {
    SCOPED_TRACE(kind->name);
    for (const int64_t context : {2500, 9000}) {
      const DrawnTask made = task(*kind, context);
      for (const size_t example : {0, 7}) {
        const AskedText asked = made.make(example);
        ASSERT_EQ(asked.questions.size(), 1);
        const Question& question = asked.questions.front();
        const auto tokens =
            std::ssize(asked.ids) + std::ssize(made.ids_of(question)) + question.answer_tokens;
        EXPECT_LE(tokens, context);
        EXPECT_GT(tokens, context - 450);
        EXPECT_GE(question.answer_tokens, std::ssize(made.ids_behind(question.answer)));
        EXPECT_EQ(made.score(question, question.answer), 1);
        EXPECT_EQ(made.score(question, "the road goes on"), 0);
        EXPECT_EQ(made.make(example).ids, asked.ids) << "the same for a seed";
      }
      EXPECT_NE(made.make(0).ids, made.make(1).ids);
    }
  }
}

TEST_F(DrawnTaskTest, TextsHoldWhatIsAskedFor) {
  for (const DrawnKind* kind : kinds()) {
    SCOPED_TRACE(kind->name);
    const DrawnTask made = task(*kind, 4500);
    const AskedText asked = made.make(3);
    const std::string text = tokenizer_->decode(asked.ids);
    const Question& question = asked.questions.front();
    EXPECT_GE(question.references.size(), 1);
    for (const std::string& reference : question.references) {
      const std::string part = kind == &extract_kind() ? reference.substr(11, 4) : reference;
      EXPECT_THAT(text, HasSubstr(part));
      EXPECT_THAT(question.text, ::testing::Not(HasSubstr(part)));
    }
  }
}

TEST_F(DrawnTaskTest, WordsOccurAsOftenAsTheyAreSaidTo) {
  const auto count = [](const std::string& text, const std::string& word) {
    int found = 0;
    for (size_t at = 0; (at = text.find(word + ' ', at)) != std::string::npos; ++at) ++found;
    return found;
  };
  const auto& kinds = retrieval_kinds();
  const AskedText common = task(kinds[9], 9000).make(0);
  ASSERT_EQ(common.questions[0].references.size(), 10);
  const std::string list = tokenizer_->decode(common.ids);
  for (const auto& word : common.questions[0].references) EXPECT_EQ(count(list, " " + word), 30);
  const AskedText frequent = task(kinds[10], 9000).make(0);
  const std::string coded = tokenizer_->decode(frequent.ids);
  int before = count(coded, "......");
  for (const auto& word : frequent.questions[0].references) {
    EXPECT_LT(count(coded, word), before);
    before = count(coded, word);
  }
  EXPECT_GT(before, 5);
}

TEST_F(DrawnTaskTest, SettingsAreSaidAndContextsTooShortRefused) {
  const DrawnKind& records = extract_kind();
  EXPECT_EQ(task(records, 3000, {.records = 4}).name(), "extract of 4 3000");
  EXPECT_NE(task(records, 3000).setup(), task(records, 3000, {.seed = 2}).setup());
  DrawnOptions prefilled;
  prefilled.question.prefill = true;
  EXPECT_EQ(task(retrieval_kinds()[0], 900, prefilled).name(),
            "one-in-noise 900, question prefilled");
  for (const DrawnKind* kind : kinds()) {
    SCOPED_TRACE(kind->name);
    EXPECT_THROW(task(*kind, 150), UsageError);
  }
}

// A text that is shorter than the context begins again.
TEST_F(DrawnTaskTest, TextsRepeat) {
  const AskedText asked = task(retrieval_kinds()[1], 40000).make(0);
  EXPECT_GT(asked.ids.size(), 39000);
}

TEST(RecordF1, CountsFieldsOfTheClosestRecords) {
  const std::vector<std::string> references{R"({"a": "x", "n": 1})", R"({"a": "y", "n": 2})"};
  const auto f1 = [&](std::string_view answer) { return record_f1(references, answer); };
  EXPECT_EQ(f1("{\"a\": \"x\", \"n\": 1}\n{\"a\": \"y\", \"n\": 2}\n"), 1);
  EXPECT_EQ(f1("1. {\"n\": 2, \"a\": \"y\"},\nand {\"a\": \"x\", \"n\": \"1\"}"), 1)
      << "in any order, numbers as texts, words around them";
  EXPECT_EQ(f1("[{\n  \"a\": \"x\",\n  \"n\": 1\n}, {\"a\": \"y\",\n\"n\": 2}]"), 1)
      << "on several lines";
  EXPECT_EQ(f1(""), 0);
  EXPECT_EQ(f1("{\"a\": \"x\""), 0);
  EXPECT_EQ(f1("[1, 2]\n{\"b\": [[1]]}"), 0);
  EXPECT_NEAR(f1(R"({"a": "x", "n": 1})"), 2 * 2 / 6.0, 1e-12);
  EXPECT_NEAR(f1("{\"a\": \"x\", \"n\": 1}\n{\"a\": \"x\", \"n\": 1}"), 2 * 2 / 8.0, 1e-12)
      << "each reference once";
  EXPECT_NEAR(f1("{\"a\": \"y\", \"n\": 1}\n{\"a\": \"x\", \"n\": 2}"), 0.5, 1e-12);
}

TEST(Sentences, EndAtMarksAndMakeUpTheText) {
  const std::string text =
      "One. Two?  Three\n4.5 is more; \xe4\xb8\x80\xe3\x80\x82"
      "end";
  const auto found = sentences(text);
  std::string joined;
  for (const auto sentence : found) joined += sentence;
  EXPECT_EQ(joined, text);
  EXPECT_EQ(found.size(), 5);
  EXPECT_EQ(found[1], "Two?  ");
  EXPECT_EQ(sentences(std::string(900, 'x')).size(), 1);
  EXPECT_EQ(sentences(std::string(300, 'x') + " " + std::string(300, 'y')).size(), 2);
}

}  // namespace
}  // namespace fasa
