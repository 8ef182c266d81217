// Parsing a model's answers: the same pieces wherever the text is cut, and text that is not a tool
// call is content.
#include "bindings/http/message_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace fasa::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Parsed {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments

  void add(const std::vector<MessagePiece>& pieces) {
    for (const MessagePiece& piece : pieces) {
      switch (piece.kind) {
        case MessagePiece::Kind::kContent:
          content += piece.text;
          break;
        case MessagePiece::Kind::kReasoning:
          reasoning += piece.text;
          break;
        case MessagePiece::Kind::kCallBegin:
          EXPECT_EQ(piece.call, static_cast<int>(calls.size()));
          calls.emplace_back(piece.text, "");
          break;
        case MessagePiece::Kind::kCallArguments:
          ASSERT_EQ(piece.call + 1, static_cast<int>(calls.size()));
          calls.back().second += piece.text;
      }
    }
  }
  bool operator==(const Parsed&) const = default;
};

Parsed parse(const MessageFormat& format, std::string_view text, size_t step) {
  MessageParser parser(format);
  Parsed parsed;
  for (size_t at = 0; at < text.size(); at += step) parsed.add(parser.push(text.substr(at, step)));
  parsed.add(parser.finish());
  return parsed;
}

// Parses the text at once, and checks that pieces of any length give the same.
Parsed parse(const MessageFormat& format, std::string_view text) {
  const Parsed whole = parse(format, text, text.size() + 1);
  for (size_t step = 1; step <= text.size(); ++step) {
    EXPECT_EQ(parse(format, text, step), whole) << step << ": " << text;
  }
  return whole;
}

MessageFormat with(ToolFormat tools) { return {.tools = tools, .names = {"get_weather", "add"}}; }

using Calls = std::vector<std::pair<std::string, std::string>>;

TEST(MessageParser, TextStaysAsItIs) {
  for (const char* text : {"", " ", "Hello, world.", " leading and trailing \n", "<thin", "<",
                           "a<b", "{\"name\": \"add\"}", "<tool_call>", "<think"}) {
    const Parsed parsed = parse({}, text);
    EXPECT_EQ(parsed.content, text);
    EXPECT_THAT(parsed.calls, IsEmpty());
  }
  for (const char* text : {"a <tool_cal", "no call. \n", "2 < 3", " \n", "x {\"name\": \"add\"}"}) {
    EXPECT_EQ(parse(with(ToolFormat::kHermes), text).content, text);
    EXPECT_EQ(parse(with(ToolFormat::kLlama), text).content, text);
    EXPECT_EQ(parse(with(ToolFormat::kMistral), text).content, text);
  }
}

TEST(MessageParser, ThoughtsAreApart) {
  const Parsed parsed = parse({}, "<think>\nIs 1 < 2? </thin\nYes.\n</think>\n\nIt is.");
  EXPECT_EQ(parsed.reasoning, "Is 1 < 2? </thin\nYes.");
  EXPECT_EQ(parsed.content, "It is.");
  const Parsed begun = parse({.thinks = true}, "Hm.\n</think>\n\nYes.\n");
  EXPECT_EQ(begun.reasoning, "Hm.");
  EXPECT_EQ(begun.content, "Yes.\n");
  EXPECT_EQ(parse({.thinks = true}, "cut in a th").reasoning, "cut in a th");
  EXPECT_EQ(parse({}, "I <think> not").content, "I <think> not");
}

TEST(MessageParser, HermesCalls) {
  const Parsed parsed = parse(
      with(ToolFormat::kHermes),
      "<think>\nhm\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"get_weather\", "
      "\"arguments\": "
      "{\"city\": \"Bet\\\"hlehem}\", \"days\": [1, {\"a\": null}]}}\n</tool_call>\n<tool_call>\n"
      "{\"arguments\": {\"a\": 1}, \"name\": \"add\"}\n</tool_call>");
  EXPECT_EQ(parsed.reasoning, "hm");
  EXPECT_EQ(parsed.content, "Let me see.");
  EXPECT_EQ(parsed.calls,
            (Calls{{"get_weather", R"({"city": "Bet\"hlehem}", "days": [1, {"a": null}]})"},
                   {"add", R"({"a": 1})"}}));
}

TEST(MessageParser, LlamaCalls) {
  const std::string call = R"({"name": "add", "parameters": {"a": 1, "b": 2}})";
  const Calls expected{{"add", R"({"a": 1, "b": 2})"}};
  EXPECT_EQ(parse(with(ToolFormat::kLlama), call).calls, expected);
  EXPECT_EQ(parse(with(ToolFormat::kLlama), "\n" + call).calls, expected);
  EXPECT_EQ(parse(with(ToolFormat::kLlama), "<|python_tag|>" + call).calls, expected);
  EXPECT_EQ(parse(with(ToolFormat::kLlama), "{\"type\": \"function\", " + call.substr(1)).calls,
            expected);
  const Parsed both = parse(with(ToolFormat::kLlama), call + "; " + call);
  EXPECT_EQ(both.calls, (Calls{expected[0], expected[0]}));
  EXPECT_EQ(both.content, "");
}

TEST(MessageParser, MistralCalls) {
  const Calls expected{{"add", R"({"a": 1})"}, {"get_weather", "{}"}};
  EXPECT_EQ(parse(with(ToolFormat::kMistral),
                  R"([TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "abcdefghi"}, )"
                  R"({"name": "get_weather", "arguments": {}}])")
                .calls,
            expected);
  EXPECT_EQ(
      parse(with(ToolFormat::kMistralArgs),
            R"(Well. [TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{"a": 1}[TOOL_CALLS]get_weather{})")
          .calls,
      expected);
}

TEST(MessageParser, ArgumentsInOtherSpellings) {
  const auto arguments = [](const std::string& members) {
    const Parsed parsed = parse(with(ToolFormat::kLlama), "{" + members + "}");
    return parsed.calls.size() == 1 ? parsed.calls[0].second : "none: " + parsed.content;
  };
  EXPECT_EQ(arguments(R"("name": "add")"), "{}");
  EXPECT_EQ(arguments(R"("name":"add","arguments":"{\"a\": \"\\\"\"}")"), R"({"a": "\""})");
  EXPECT_EQ(arguments(R"("id" : 7 , "name" : "add" , "parameters" : { } )"), "{ }");
}

TEST(MessageParser, WhatIsNoCallIsContent) {
  for (const char* text :
       {R"({"name": "unknown", "parameters": {}})", R"({"name": 5})", R"({"colour": "red"})", "{}",
        R"({"parameters": 7, "name": "add"})", "{name: add}", R"({"name": "ad)",
        R"({"parameters": {"a": ]}, "name": "add"})"}) {
    for (const ToolFormat format :
         {ToolFormat::kLlama, ToolFormat::kHermes, ToolFormat::kMistral}) {
      const std::string mark = format == ToolFormat::kHermes    ? "<tool_call>\n"
                               : format == ToolFormat::kMistral ? "[TOOL_CALLS]["
                                                                : "";
      const Parsed parsed = parse(with(format), mark + text);
      EXPECT_THAT(parsed.calls, IsEmpty()) << text;
      EXPECT_EQ(parsed.content, mark + text);
    }
  }
}

TEST(MessageParser, ACutCallIsTheBeginningOfOne) {
  const Parsed parsed =
      parse(with(ToolFormat::kHermes), R"(<tool_call>{"name": "add", "arguments": {"a": [1, 2)");
  EXPECT_EQ(parsed.calls, (Calls{{"add", R"({"a": [1, 2)"}}));
  EXPECT_EQ(parsed.content, "");
}

TEST(MessageParser, OneCallWhereNoMoreAreWanted) {
  MessageFormat format = with(ToolFormat::kHermes);
  format.one_call = true;
  const std::string call = R"(<tool_call>{"name": "add", "arguments": {}}</tool_call>)";
  EXPECT_EQ(parse(format, call + call + "done").calls, (Calls{{"add", "{}"}}));
}

TEST(MessageParser, DeepAndLongCallsEnd) {
  const std::string deep(100'000, '[');
  EXPECT_THAT(parse(with(ToolFormat::kLlama), "{\"x\": " + deep, 1 << 20).content,
              ::testing::StartsWith("{\"x\": [[["));
  const std::string late = "{\"x\": \"" + std::string(100'000, 'y') + "\", \"name\": \"add\"}";
  EXPECT_EQ(parse(with(ToolFormat::kLlama), late, 1 << 20).content, late);
}

TEST(ToolFormat, IsWhatTheTemplateShows) {
  EXPECT_EQ(tool_format_of("...'<tool_call>\\n'..."), ToolFormat::kHermes);
  EXPECT_EQ(tool_format_of("<tool_call><function=...>"), std::nullopt);
  EXPECT_EQ(tool_format_of("[TOOL_CALLS] ["), ToolFormat::kMistral);
  EXPECT_EQ(tool_format_of("[TOOL_CALLS]x[ARGS]"), ToolFormat::kMistralArgs);
  EXPECT_EQ(tool_format_of("<|python_tag|>"), ToolFormat::kLlama);
  EXPECT_EQ(tool_format_of("{{ messages }}"), std::nullopt);
}

}  // namespace
}  // namespace fasa::serve
