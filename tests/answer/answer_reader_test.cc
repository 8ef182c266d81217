// Answers in each format: the same result wherever the text is cut.
#include "runtime/text/answer/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/answer/parsed_answer.h"

namespace fasa::text {
namespace {

using Json = nlohmann::json;

struct Call {
  std::string name, arguments;
};

struct Case {
  std::string format;
  std::string prompt;  // its end
  std::string text;
  std::string reasoning, content;
  std::vector<Call> calls;
};

AnswerReading reading_of(const std::string& format, const std::string& prompt = "",
                         std::vector<CallableFunction> functions = weather_functions()) {
  auto coded = format_as_text(format);
  const AnswerStart start = answer_start(*coded, prompt);
  return {.format = std::move(coded), .functions = std::move(functions), .start = start};
}

const std::string kBonn = R"({"town": "Bonn"})";

std::vector<Case> cases() {
  return {
      {"hermes",
       "",
       "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"town\": \"Bonn\", "
       "\"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n"
       "</tool_call>",
       "",
       "I look.",
       {{"get_weather", R"({"town": "Bonn", "days": 2})"}, {"now", "{}"}}},
      {"hermes",
       "",
       "<tool_call> is a tag that I know.",
       "",
       "<tool_call> is a tag that I know.",
       {}},
      {"qwen-tags",
       "<think>\n",
       "They ask of Bonn.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=town>\n"
       "Bonn\n</parameter>\n<parameter=days>\n2\n</parameter>\n<parameter=exact>\nTrue\n"
       "</parameter>\n<parameter=at>\n{\"lat\": 50.7}\n</parameter>\n</function>\n</tool_call>",
       "They ask of Bonn.",
       "",
       {{"get_weather", R"({"town": "Bonn", "days": 2, "exact": true, "at": {"lat": 50.7}})"}}},
      {"qwen-tags",
       "",
       "<tool_call>\n<function=get_weather>\n<parameter=town>\n007\n</parameter>\n</function>\n"
       "</tool_call>",
       "",
       "",
       {{"get_weather", R"({"town": "007"})"}}},
      {"qwen-tags",
       "",
       "<tool_call>\n<function=write>\n<parameter=text>\nif (a < b) {\n  s = \"</p>\";\n}\n\n"
       "</parameter>\n</function>\n</tool_call>",
       "",
       "",
       {{"write", R"({"text": "if (a < b) {\n  s = \"</p>\";\n}\n"})"}}},
      {"qwen-tags",
       "<think>\n",
       "I call it.\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       "I call it.",
       "",
       {{"now", "{}"}}},
      {"qwen-tags",
       "",
       "<tool_call>\n<function=write>\n<parameter=text>\nend it by </parameter> there\n"
       "</parameter>\n</function>\n</tool_call>\nDone.",
       "",
       "Done.",
       {{"write", R"({"text": "end it by </parameter> there"})"}}},
      {"seed-tags",
       "",
       "<seed:think>Short.<seed:cot_budget_reflect>12 used</seed:cot_budget_reflect></seed:think>"
       "<seed:tool_call>\n<function=get_weather>\n<parameter=town>Bonn</parameter>\n</function>\n"
       "</seed:tool_call>",
       "Short.12 used",
       "",
       {{"get_weather", kBonn}}},
      {"glm-tags",
       "",
       "\n<think>Hm.</think>\n<tool_call>get_weather\n<arg_key>town</arg_key>\n<arg_value>Bonn"
       "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
       "Hm.",
       "",
       {{"get_weather", R"({"town": "Bonn", "days": 2})"}}},
      {"glm-tags", "", "<tool_call>now</tool_call>", "", "", {{"now", "{}"}}},
      {"gemma-pairs",
       "",
       "<|channel>thought\nA town.\n<channel|><|tool_call>call:get_weather{town:<|\"|>Bonn, "
       "\"old\"<|\"|>,days:2,at:{lat:50.7}}<tool_call|><|tool_call>call:now{}<tool_call|>",
       "A town.",
       "",
       {{"get_weather", R"({"town": "Bonn, \"old\"", "days": 2, "at": {"lat": 50.7}})"},
        {"now", "{}"}}},
      {"gemma-pairs",
       "",
       "<|tool_call>call:get_weather{town:<|\"|>a}b,c:d<|\"|>}<tool_call|>",
       "",
       "",
       {{"get_weather", R"({"town": "a}b,c:d"})"}}},
      {"gemma-pairs", "", "<|channel>thought\nHm.<channel|>4", "Hm.", "4", {}},
      {"gemma-pairs", "<|channel>thought\n", "Hm.<channel|>4", "Hm.", "4", {}},
      {"function-gemma",
       "",
       "<start_function_call>call:get_weather{town:<escape>Bonn<escape>}<end_function_call>",
       "",
       "",
       {{"get_weather", kBonn}}},
      {"channels",
       "<|start|>assistant",
       "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.get_weather <|constrain|>json<|message|>{\"town\":\"Bonn\"}",
       "Need it.",
       "",
       {{"get_weather", kBonn}}},
      {"channels",
       "<|start|>assistant",
       " to=functions.now<|channel|>commentary json<|message|>{}",
       "",
       "",
       {{"now", "{}"}}},
      {"channels",
       "<|start|>assistant",
       "<|channel|>analysis to=functions.now code<|message|>{}<|call|>",
       "",
       "",
       {{"now", "{}"}}},
      {"channels",
       "<|start|>assistant",
       "<|channel|>commentary<|message|>I will look it up.<|end|><|start|>assistant<|channel|>final"
       "<|message|>It is 7.",
       "",
       "I will look it up.\nIt is 7.",
       {}},
      {"channels", "<|start|>assistant", "tomorrow", "", "tomorrow", {}},
      {"actions",
       "",
       "<|START_THINKING|>Look.<|END_THINKING|><|START_ACTION|>[\n {\"tool_call_id\": \"0\", "
       "\"tool_name\": \"get_weather\", \"parameters\": {\"town\": \"Bonn\"}},\n "
       "{\"tool_call_id\": "
       "\"1\", \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>",
       "Look.",
       "",
       {{"get_weather", kBonn}, {"now", "{}"}}},
      {"actions", "<|START_RESPONSE|>", "Mild.<|END_RESPONSE|>", "", "Mild.", {}},
      {"actions",
       "",
       "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Mild.<|END_RESPONSE|>",
       "Hm.",
       "Mild.",
       {}},
      {"python-calls",
       "<think>",
       "Two things.</think>\n<function_calls>get_weather(town=\"Bonn\", exact=True)\nnow()"
       "</function_calls>",
       "Two things.",
       "",
       {{"get_weather", R"({"town": "Bonn", "exact": true})"}, {"now", "{}"}}},
      {"python-calls",
       "",
       "<function_calls>get_weather(town='it\\'s', at={\"lat\": 1e1}, days=-3)</function_calls>",
       "",
       "",
       {{"get_weather", R"({"town": "it's", "at": {"lat": 1e1}, "days": -3})"}}},
      {"python-list",
       "",
       "[get_weather(town=\"Bonn\"), now()]",
       "",
       "",
       {{"get_weather", kBonn}, {"now", "{}"}}},
      {"python-list", "", "[1, 2] is a list", "", "[1, 2] is a list", {}},
      {"llama-json",
       "",
       "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}",
       "",
       "",
       {{"now", "{}"}}},
      {"mistral-list",
       "",
       "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"get_weather\", "
       "\"arguments\": {\"town\": \"Bonn\"}}]",
       "",
       "",
       {{"now", "{}"}, {"get_weather", kBonn}}},
      {"mistral-arguments",
       "",
       "[THINK]Aha.[/THINK]So.[TOOL_CALLS]get_weather[ARGS]{\"town\": "
       "\"Bonn\"}[TOOL_CALLS]now[ARGS]"
       "{}",
       "Aha.",
       "So.",
       {{"get_weather", kBonn}, {"now", "{}"}}},
      {"mistral-arguments",
       "[THINK]",
       "Aha.[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}",
       "Aha.",
       "",
       {{"now", "{}"}}},
      {"phi-list",
       "",
       "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>",
       "",
       "",
       {{"now", "{}"}}},
      {"phi-list",
       "",
       "<|tool_call|>{\"name\": \"now\", \"arguments\": {}}<|/tool_call|>",
       "",
       "",
       {{"now", "{}"}}},
      {"nemotron-list",
       "",
       "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>",
       "",
       "",
       {{"now", "{}"}}},
      {"granite-list",
       "",
       "<tool_call>[{\"name\": \"now\", \"arguments\": {}}]",
       "",
       "",
       {{"now", "{}"}}},
      {"granite-list", "", "<think>Yes.</think><response>Seven.</response>", "Yes.", "Seven.", {}},
      {"glm-names", "", "get_weather\n{\"town\": \"Bonn\"}", "", "", {{"get_weather", kBonn}}},
      {"glm-names",
       "",
       "now\n{}<|assistant|>get_weather\n{\"town\": \"Bonn\"}",
       "",
       "",
       {{"now", "{}"}, {"get_weather", kBonn}}},
      {"glm-names", "", "get_weatherman is a word.", "", "get_weatherman is a word.", {}},
      {"deepseek-blocks",
       "<think>\n",
       "Hm.\n</"
       "think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n"
       "{}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```"
       "json\n"
       "{\"town\": \"Bonn\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "Hm.",
       "",
       {{"now", "{}"}, {"get_weather", kBonn}}},
      {"deepseek-calls",
       "",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       "",
       {{"now", "{}"}, {"now", "{}"}}},
  };
}

TEST(AnswerReader, EachFormat) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.format + ": " + one.text);
    const ParsedAnswer parsed = parse_answer(reading_of(one.format, one.prompt), one.text);
    EXPECT_EQ(parsed.reasoning, one.reasoning);
    EXPECT_EQ(parsed.content, one.content);
    ASSERT_EQ(parsed.calls.size(), one.calls.size());
    for (size_t i = 0; i < one.calls.size(); ++i) {
      EXPECT_EQ(parsed.calls[i].first, one.calls[i].name);
      EXPECT_EQ(Json::parse(parsed.calls[i].second, nullptr, false),
                Json::parse(one.calls[i].arguments))
          << parsed.calls[i].second;
      EXPECT_TRUE(parsed.whole[i]);
    }
  }
}

// A function that is not among the tools, and no tools at all: the text stays, thoughts apart.
TEST(AnswerReader, UnknownCallsAreText) {
  for (const Case& one : cases()) {
    if (one.calls.empty()) continue;
    SCOPED_TRACE(one.format + ": " + one.text);
    for (const bool none : {true, false}) {
      std::vector<CallableFunction> functions;
      if (!none) functions.push_back({"other", nullptr});
      const ParsedAnswer parsed =
          parse_answer(reading_of(one.format, one.prompt, functions), one.text);
      EXPECT_TRUE(parsed.calls.empty());
      EXPECT_NE((parsed.content + parsed.reasoning).find(one.calls[0].name), std::string::npos);
    }
  }
}

TEST(AnswerReader, CutAnswers) {
  const ParsedAnswer parsed = parse_answer(
      reading_of("qwen-tags"), "<tool_call>\n<function=get_weather>\n<parameter=town>\nBo");
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.calls[0].second, R"({"town": "Bo)");
  EXPECT_FALSE(parsed.whole[0]);
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}";
  for (const char* const mark : {"", "\n", "\n<", "\n</tool_call"}) {
    EXPECT_EQ(parse_answer(reading_of("hermes"), now + mark).content, "") << mark;
  }
  // Wherever it ends, nothing is whole that is not, and nothing is lost before a call is announced.
  for (const Case& one : cases()) {
    for (size_t size = 0; size < one.text.size(); ++size) {
      const std::string text = one.text.substr(0, size);
      const ParsedAnswer cut =
          parse_in_steps(reading_of(one.format, one.prompt), text, text.size(), 1);
      for (size_t i = 0; i < cut.calls.size(); ++i) {
        EXPECT_TRUE(!cut.whole[i] || Json::accept(cut.calls[i].second)) << one.format << text;
      }
    }
  }
}

TEST(AnswerReader, TextStaysAsItIs) {
  for (const char* text : {"", " ", "Hello, world.", " leading and trailing \n", "<thin", "<",
                           "a<b", "{\"name\": \"now\"}", "<tool_call>", "<think", "a <tool_cal",
                           "no call. \n", "2 < 3", " \n", "x {\"name\": \"now\"}"}) {
    for (const AnswerFormat& row : answer_formats()) {
      SCOPED_TRACE(row.name);
      EXPECT_EQ(parse_answer(reading_of(row.name, "", {}), text).content, text);
      if (row.name == "llama-json" && text[0] == '{') continue;  // a call without arguments
      const ParsedAnswer parsed = parse_answer(reading_of(row.name), text);
      EXPECT_EQ(parsed.content, text);
      EXPECT_TRUE(parsed.calls.empty());
    }
  }
}

TEST(AnswerReader, Thoughts) {
  const ParsedAnswer parsed =
      parse_answer(reading_of("hermes"), "<think>\nIs 1 < 2? </thin\nYes.\n</think>\n\nIt is.");
  EXPECT_EQ(parsed.reasoning, "Is 1 < 2? </thin\nYes.");
  EXPECT_EQ(parsed.content, "It is.");
  EXPECT_EQ(parse_answer(reading_of("hermes", "<think>\n"), "cut in a th").reasoning,
            "cut in a th");
  EXPECT_EQ(parse_answer(reading_of("hermes"), "I <think> not").content, "I <think> not");
  const ParsedAnswer quoted = parse_answer(reading_of("hermes", "<think>"),
                                           "The mark `</think>` ends it. So.\n</think>\n\nanswer");
  EXPECT_EQ(quoted.reasoning, "The mark `</think>` ends it. So.");
  EXPECT_EQ(quoted.content, "answer");
}

TEST(AnswerReader, CallsThatOnlyLookLikeCalls) {
  const std::string now = R"({"name":"now","arguments":{}})";
  const std::string bonn = R"({"name":"get_weather","arguments":{"town": "Bonn"}})";
  const auto parse = [&](const std::string& text, const char* prompt = "") {
    return parse_answer(reading_of("hermes", prompt), text);
  };
  for (const std::string& text :
       {"So:\n```\n<tool_call>" + now + "</tool_call>\n```\nDone.",
        "Write `<tool_call>" + now + "</tool_call>` to call.",
        std::string("<tool_call>{\"name\":\"now\",\"name\":\"now\",\"arguments\":{}}</tool_call>"),
        std::string("<tool_call>{'name':'now','arguments':{}}</tool_call>")}) {
    EXPECT_EQ(parse(text).content, text);
    EXPECT_TRUE(parse(text).calls.empty());
  }
  for (const std::string& text :
       {"<tool_call>\n" + now + "\n<tool_call>\n" + bonn + "\n</tool_call>",
        "<tool_call>" + now + "\n" + bonn + "</tool_call>",
        "<tool_call>[" + now + "," + bonn + "]</tool_call>"}) {
    const ParsedAnswer both = parse(text);
    ASSERT_EQ(both.calls.size(), 2u) << text;
    EXPECT_EQ(both.calls[1].second, kBonn);
    EXPECT_EQ(both.content, "");
  }
  EXPECT_EQ(parse("<tool_call>" + now + "\nAnd then.").content, "And then.");
  EXPECT_EQ(parse("<tool_call>" + now + "</tool_call>\nAnd now?").content, "And now?");
  EXPECT_THAT(parse("<tool_call>" + now + " oops</tool_call>").content,
              ::testing::StartsWith("oops"));
  const ParsedAnswer inside =
      parse("I could <tool_call>" + now + "</tool_call> now</think>\n\nok", "<think>");
  EXPECT_EQ(inside.reasoning, "I could <tool_call>" + now + "</tool_call> now");
  EXPECT_EQ(inside.content, "ok");
  const ParsedAnswer never = parse("I call.\n<tool_call>\n" + now + "\n</tool_call>", "<think>");
  EXPECT_EQ(never.reasoning, "I call.");
  EXPECT_EQ(never.calls.size(), 1u);
}

TEST(AnswerReader, ArgumentsInOtherSpellings) {
  const auto arguments = [](const std::string& members) {
    const ParsedAnswer parsed =
        parse_answer(reading_of("hermes"), "<tool_call>{" + members + "}</tool_call>");
    return parsed.calls.size() == 1 && parsed.whole[0] ? parsed.calls[0].second
                                                       : "none: " + parsed.content;
  };
  EXPECT_EQ(arguments(R"("name": "now")"), "{}");
  EXPECT_EQ(arguments(R"("name": "now", "arguments": null)"), "{}");
  EXPECT_EQ(arguments(R"("name": "now", "arguments": "")"), "{}");
  EXPECT_EQ(arguments(R"("name":"now","arguments":"{\"a\": \"\\\"\"}")"), R"({"a": "\""})");
  EXPECT_EQ(arguments(R"("id" : 7 , "name" : "now" , "parameters" : { } )"), "{ }");
  EXPECT_EQ(arguments(R"("arguments": {"a": [1, {"b": "}"}]}, "name": "now")"),
            R"({"a": [1, {"b": "}"}]})");
  EXPECT_EQ(arguments(R"("name": "now", "arguments": {"a": 1, },)"), R"({"a": 1 })");
  EXPECT_EQ(arguments("\"name\": \"now\", \"arguments\": {\"a\": \"x\ny\"}"), R"({"a": "x\ny"})");
}

TEST(AnswerReader, OneCallWhereNoMoreAreWanted) {
  for (const Case& one : cases()) {
    AnswerReading reading = reading_of(one.format, one.prompt);
    reading.one_call = true;
    EXPECT_LE(parse_answer(reading, one.text).calls.size(), 1u);
  }
}

TEST(AnswerReader, DeepAndLongCallsEnd) {
  const AnswerReading reading = reading_of("llama-json");
  const std::string deep = "{\"x\": " + std::string(100'000, '[');
  EXPECT_EQ(parse_in_steps(reading, deep, deep.size(), 1).content, deep);
  const std::string late = "{\"x\": \"" + std::string(100'000, 'y') + "\", \"name\": \"now\"}";
  EXPECT_EQ(parse_in_steps(reading, late, late.size(), 1).content, late);
}

// Types decide what a text in tags is.
TEST(AnswerReader, TypesOfParameters) {
  const auto value = [](const std::string& schema, const std::string& text) {
    std::vector<CallableFunction> functions{
        {"f", nlohmann::ordered_json::parse("{\"$defs\": {\"n\": {\"type\": \"number\"}, "
                                            "\"a text\": {\"type\": \"string\"}}, "
                                            "\"properties\": {\"a\": " +
                                            schema + "}}")}};
    const ParsedAnswer parsed = parse_answer(
        reading_of("qwen-tags", "", functions),
        "<tool_call>\n<function=f>\n<parameter=a>\n" + text + "\n</parameter>\n</function>");
    return parsed.calls.empty() ? Json("none") : Json::parse(parsed.calls[0].second)["a"];
  };
  EXPECT_EQ(value(R"({"type": "string"})", "123"), Json("123"));
  EXPECT_EQ(value(R"({"type": "string"})", "\"x\""), Json("\"x\""));
  EXPECT_EQ(value(R"({"type": "integer"})", "123"), Json(123));
  EXPECT_EQ(value(R"({"type": "integer"})", "many"), Json("many"));
  EXPECT_EQ(value(R"({"type": "array"})", "['a', None]"), Json::parse(R"(["a", null])"));
  EXPECT_EQ(value(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "null"), Json(nullptr));
  EXPECT_EQ(value(R"({"type": ["string", "null"]})", "12"), Json("12"));
  EXPECT_EQ(value(R"({"anyOf": [{"type": "string"}, {"type": "number"}]})", "12"), Json(12));
  EXPECT_EQ(value(R"({"enum": ["1", "2"]})", "1"), Json("1"));
  EXPECT_EQ(value(R"({"$ref": "#/$defs/n"})", "1.5"), Json(1.5));
  EXPECT_EQ(value(R"({"$ref": "#/$defs/a%20text"})", "1.5"), Json("1.5"));
  EXPECT_EQ(value(R"({"allOf": [{"$ref": "#/$defs/a text"}]})", "1.5"), Json("1.5"));
  EXPECT_EQ(value("{}", "{\"b\": 1}"), Json::parse(R"({"b": 1})"));
  EXPECT_EQ(value("{}", "plain"), Json("plain"));
}

}  // namespace
}  // namespace fasa::text
