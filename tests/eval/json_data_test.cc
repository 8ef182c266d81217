// Data sets of JSON lines: which lines are read, which are skipped, and the prompts made from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/eval/answer_run.h"
#include "runtime/eval/data_sets.h"
#include "runtime/eval/tasks/longbench2_task.h"
#include "runtime/eval/tasks/longbench_task.h"
#include "runtime/eval/tasks/math_task.h"
#include "runtime/eval/tasks/ruler_task.h"
#include "tests/llm/llm_fixture.h"
#include "tests/llm/temp_model.h"

namespace fasa {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(JsonLines, BadLinesAreNamedAndTheRestGoesOn) {
  const llm_test::TempDir dir;
  dir.write("a.jsonl", "{\"x\": 1}\n\n{broken\n[1]\n{\"y\": 2}\n{\"x\": null}\r\n{\"x\": \"end\"}");
  const auto result = read_json_lines(dir.path() + "/a.jsonl", {"x"});
  ASSERT_EQ(result.lines.size(), 2);
  EXPECT_EQ(result.lines[1].number, 7);
  EXPECT_EQ(result.lines[1].object.at("x"), "end");
  EXPECT_THAT(result.problems, ElementsAre(HasSubstr("a.jsonl:3: invalid JSON"),
                                           HasSubstr("a.jsonl:4: not a JSON object"),
                                           HasSubstr("a.jsonl:5: \"x\" is missing"),
                                           HasSubstr("a.jsonl:6: \"x\" is missing")));
  EXPECT_THROW(read_json_lines(dir.path() + "/none.jsonl", {}), InputError);
}

TEST(FilledTemplate, TakesMembersAndLeavesTheRest) {
  const nlohmann::json members = {{"a", "A{b}"}, {"n", 3}};
  EXPECT_EQ(filled_template("x {a} {b} {n} {{c}} }", members), "x A{b} {b} {n} {c} }");
  EXPECT_EQ(filled_template("{a", members), "{a");
  EXPECT_EQ(filled_template("", members), "");
}

TEST(WithoutMiddle, KeepsBothEnds) {
  EXPECT_THAT(without_middle({1, 2, 3, 4, 5, 6}, 3), ElementsAre(1, 5, 6));
  EXPECT_THAT(without_middle({1, 2, 3, 4, 5, 6}, 4), ElementsAre(1, 2, 5, 6));
  EXPECT_THAT(without_middle({1, 2, 3}, 3), ElementsAre(1, 2, 3));
}

class DataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_.write("dataset2prompt.json", R"({"qasper": "Read: {context}\nQ: {input}\nA:"})");
    dir_.write("dataset2maxlen.json", R"({"qasper": 4})");
    dir_.write("qasper.jsonl",
               "{\"context\": \"0123456789\", \"input\": \"why\", \"answers\": [\"x\"]}\nbad\n");
  }
  template <typename F>
  std::string error_of(F&& make) const {
    try {
      make();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  LongBenchTask longbench(int64_t context) const {
    return LongBenchTask(dir_.path(), "qasper", *tokenizer_, {.context = context});
  }

  // Text and question, with a bar between them.
  std::string prompt(const QuestionTask& task) const {
    const AskedText asked = task.make(0);
    return tokenizer_->decode(asked.ids) + "|" +
           tokenizer_->decode(task.ids_of(asked.questions.front()));
  }

  llm_test::TempDir dir_;
  std::unique_ptr<text::Tokenizer> tokenizer_ =
      text::Tokenizer::load_if_present(llm_test::bundled_dir());
};

TEST_F(DataTest, LongBenchPromptsLoseTheirMiddle) {
  EXPECT_EQ(longbench_names().size(), 21);
  const LongBenchTask whole = longbench(200);
  EXPECT_EQ(prompt(whole), "Read: 0123456789|\nQ: why\nA:");
  EXPECT_THAT(whole.problems(), ElementsAre(HasSubstr("qasper.jsonl:2")));
  EXPECT_EQ(whole.examples(), 1);
  EXPECT_EQ(prompt(longbench(20)), "Rea789|\nQ: why\nA:");
  EXPECT_EQ(prompt(longbench(12)), "Ready\nA|:") << "no room for a text beside the question";
}

TEST_F(DataTest, LongBenchAnswersAreKept) {
  const auto device = llm_test::open_test_device("cpu");
  Model model = Model::load(llm_test::bundled_dir(), *device, DType::kF32);
  const auto runtime = llm_test::full_runtime(model);
  LongBenchTask task = longbench(64);
  const auto record = task.run(0, {model, *runtime});
  EXPECT_EQ(record.at("prediction").get<std::string>().size(), 4);
  EXPECT_EQ(record.at("answers"), nlohmann::json::array({"x"}));
  EXPECT_EQ(record.at("tokens"), 16);
}

TEST_F(DataTest, LongBenchErrorsSayWhere) {
  EXPECT_THAT(error_of([&] { longbench(7); }), HasSubstr("--context = 7"));
  dir_.write("dataset2maxlen.json", R"({"trec": 4})");
  EXPECT_THAT(error_of([&] { longbench(64); }), HasSubstr("dataset2maxlen.json: \"qasper\""));
  dir_.write("dataset2maxlen.json", R"({"qasper": 0})");
  EXPECT_THAT(error_of([&] { longbench(64); }), HasSubstr("as LongBench publishes"));
  std::filesystem::remove(dir_.path() + "/dataset2prompt.json");
  EXPECT_THAT(error_of([&] { longbench(64); }), HasSubstr("dataset2prompt.json is missing"));
  SetUp();
  dir_.write("qasper.jsonl", "{\"context\": \"c\"}\n");
  EXPECT_THAT(error_of([&] { longbench(64); }), HasSubstr("qasper.jsonl:1: \"input\" is missing"));
}

TEST_F(DataTest, ADataSetIsOneOfThreeFiles) {
  EXPECT_THAT(data_file(dir_.path(), "qasper"), HasSubstr("qasper.jsonl"));
  EXPECT_THAT(data_file(dir_.path(), "none"), HasSubstr("none.jsonl"));
  dir_.write("list.json", R"([{"x": 1}, 2, {"x": 3}])");
  const auto list = read_json_lines(data_file(dir_.path(), "list"), {"x"});
  ASSERT_EQ(list.lines.size(), 2);
  EXPECT_EQ(list.lines[1].number, 3);
  EXPECT_THAT(list.problems, ElementsAre(HasSubstr("list.json:2: not a JSON object")));
  std::filesystem::create_directory(dir_.path() + "/vt");
  dir_.write("vt/validation.jsonl", "{}\n");
  EXPECT_THAT(data_file(dir_.path(), "vt"), HasSubstr("vt/validation.jsonl"));
  EXPECT_THAT(data_sets("ruler", dir_.path(), {}, {}), ElementsAre("qasper", "vt"));
  constexpr std::array<std::string_view, 1> kList = {"list"};
  EXPECT_THAT(data_sets("longbench2", dir_.path(), {}, kList), ElementsAre("list"));
}

TEST_F(DataTest, RulersFilesInBothForms) {
  dir_.write("niah_multikey_1.jsonl",
             R"({"input": "Hay. What hay?\nMore hay.\nWhat is K?", "outputs": ["12"],)"
             R"( "answer_prefix": " K is"})"
             "\n"
             R"({"input": "x", "outputs": []})"
             "\n"
             R"({"context": "Hay? ", "question": "And K?", "answer": "7"})"
             "\n");
  const RulerTask task(dir_.path() + "/niah_multikey_1.jsonl", "niah_multikey_1", *tokenizer_,
                       {.context = 500}, 10);
  ASSERT_EQ(task.examples(), 2);
  EXPECT_THAT(task.problems(), ElementsAre(HasSubstr(":2: \"outputs\" is not a list of texts")));
  EXPECT_EQ(prompt(task), "Hay. What hay?\nMore hay.|\nWhat is K? K is");
  const AskedText second = task.make(1);
  EXPECT_EQ(tokenizer_->decode(second.ids), "Hay? ");
  EXPECT_EQ(second.questions[0].references, std::vector<std::string>{"7"});
  EXPECT_EQ(second.questions[0].answer_tokens, 128);
  EXPECT_EQ(task.longest(), 24 + 16 + 128) << "what the longest takes";
  EXPECT_FALSE(task.setup().contains("context"));
  EXPECT_THAT(error_of([&] {
                RulerTask(dir_.path() + "/niah_multikey_1.jsonl", "x", *tokenizer_,
                          {.context = 100}, 1);
              }),
              HasSubstr("more than the context of 100"));
}

TEST_F(DataTest, RulersTwoRules) {
  dir_.write("vt.jsonl", R"({"input": "a\nQuestion: b", "outputs": ["X1", "X2"]})"
                         "\n");
  const auto score = [&](const std::string& name) {
    const RulerTask task(dir_.path() + "/vt.jsonl", name, *tokenizer_, {.context = 500}, 10);
    return task.score(task.make(0).questions[0], "it is x2 alone");
  };
  EXPECT_EQ(score("vt"), 0.5);
  EXPECT_EQ(score("qa_1"), 1);
  EXPECT_EQ(ruler_question("a? b"), 0);
  EXPECT_EQ(ruler_question("one\ntwo"), 0);
  EXPECT_EQ(ruler_question("a?\nQuestion: find\nAnswer:"), 2);
}

TEST(ChosenLetter, TakesTheFirstInItsForm) {
  EXPECT_EQ(chosen_letter("**The correct answer is (C)** because"), "C");
  EXPECT_EQ(chosen_letter("The correct answer is B."), "B");
  EXPECT_EQ(chosen_letter("The correct answer is A. Or: The correct answer is (D)"), "D")
      << "brackets first";
  EXPECT_EQ(chosen_letter("The correct answer is (E)"), "");
  EXPECT_EQ(chosen_letter("B"), "");
}

TEST_F(DataTest, LongBench2) {
  const auto line = [](const char* answer, const char* text = "0123456789") {
    return nlohmann::json{{"context", text},  {"question", "why"}, {"choice_A", "$Q$"},
                          {"choice_B", "b"},  {"choice_C", "c"},   {"choice_D", "d"},
                          {"answer", answer}, {"length", "short"}};
  };
  dir_.write("0shot.txt", "Text: $DOC$\n$Q$ $C_A$ $C_B$ $C_C$ $C_D$");
  const std::string long_text(1000, '$');
  dir_.write("data.json",
             nlohmann::json::array({line("A"), line("E"), line("B", long_text.c_str())}).dump());
  const LongBench2Task task(dir_.path(), *tokenizer_, {.context = 400});
  ASSERT_EQ(task.examples(), 2);
  EXPECT_EQ(task.id(1), "3");
  EXPECT_THAT(task.problems(), ElementsAre(HasSubstr(":2: \"answer\" is not one of A, B, C, D")));
  EXPECT_EQ(prompt(task), "Text: 0123456789|\nwhy $Q$ b c d");
  const Question question = task.make(0).questions[0];
  EXPECT_EQ(question.about.at("length"), "short");
  EXPECT_EQ(task.score(question, question.answer), 1);
  EXPECT_EQ(task.make(1).ids.size(), 400 - 128 - 14);
  std::filesystem::remove(dir_.path() + "/0shot.txt");
  EXPECT_THAT(error_of([&] { LongBench2Task(dir_.path(), *tokenizer_, {.context = 400}); }),
              HasSubstr("0shot.txt is missing"));
}

TEST_F(DataTest, MathTakesEitherName) {
  dir_.write("m.jsonl",
             "{\"problem\": \"1+1?\", \"answer\": 2}\n{\"question\": \"2?\", \"answer\": \"2\"}\n"
             "{\"answer\": 3}\n{\"problem\": \"p\"}\n");
  MathTask task(dir_.path() + "/m.jsonl", *tokenizer_, {.context = 400, .samples = 2});
  EXPECT_EQ(task.name(), "m");
  EXPECT_EQ(task.examples(), 2);
  EXPECT_EQ(task.id(1), "2");
  EXPECT_EQ(task.problems().size(), 2);
}

TEST_F(DataTest, MathWritesSolutionsAndLeavesFullContextsEmpty) {
  dir_.write("m.jsonl", "{\"problem\": \"1+1?\", \"answer\": 2}\n");
  const auto device = llm_test::open_test_device("cpu");
  Model model = Model::load(llm_test::bundled_dir(), *device, DType::kF32);
  const auto runtime = llm_test::full_runtime(model);
  const auto record = [&](int64_t context) {
    MathTask task(dir_.path() + "/m.jsonl", *tokenizer_,
                  {.context = context, .samples = 2, .sampling = {.temperature = 1}});
    return task.run(0, {model, *runtime});
  };
  const auto done = record(180);
  EXPECT_EQ(done.at("answer"), "2");
  ASSERT_EQ(done.at("predictions").size(), 2);
  EXPECT_NE(done.at("predictions")[0], done.at("predictions")[1]) << "seeds of their own";
  EXPECT_EQ(record(60).at("predictions")[1], "");
}

TEST(MathOptions, AreChecked) {
  EXPECT_THROW((MathOptions{.samples = 2, .pass_k = 3}.validate(8192)), UsageError);
  EXPECT_THROW((MathOptions{.samples = 0}.validate(8192)), UsageError);
  EXPECT_THROW((MathOptions{.context = 9000}.validate(8192)), UsageError);
}

}  // namespace
}  // namespace fasa
