// Grammars of calls: they accept what the writer writes, and what they accept reads as a call.
#include "runtime/text/answer/call_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/io/input_file.h"
#include "runtime/text/answer/call_writer.h"
#include "runtime/text/grammar/grammar_automaton.h"
#include "tests/answer/parsed_answer.h"
#include "tests/support/source_path.h"

namespace fasa::text {
namespace {

using Json = nlohmann::ordered_json;

// A text of the grammar, by steps of chance, that ends soon.
std::string sample(GrammarAutomaton& automaton, std::mt19937& random) {
  std::string text;
  GrammarAutomaton::State state = automaton.start();
  for (int step = 0; step < 4000 && !automaton.complete(state); ++step) {
    if (automaton.accepts(state) && random() % 4 == 0) break;
    std::vector<char> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      // Mostly letters and what ends a text.
      const bool often = byte < 128 && (std::isalnum(byte) == 0 || random() % 8 == 0);
      if (!often && !MarkCodes::is_code(static_cast<char>(byte))) continue;
      if (automaton.next(state, static_cast<unsigned char>(byte)) != GrammarAutomaton::kDead) {
        bytes.push_back(static_cast<char>(byte));
      }
    }
    if (bytes.empty()) {
      for (int byte = 0; byte < 256; ++byte) {
        if (automaton.next(state, static_cast<unsigned char>(byte)) != GrammarAutomaton::kDead) {
          bytes.push_back(static_cast<char>(byte));
        }
      }
    }
    text += bytes[random() % bytes.size()];
    state = automaton.next(state, static_cast<unsigned char>(text.back()));
  }
  return automaton.accepts(state) ? text : "";
}

bool accepts(GrammarAutomaton& automaton, std::string_view text) {
  GrammarAutomaton::State state = automaton.start();
  for (const char byte : text) {
    state = automaton.next(state, static_cast<unsigned char>(byte));
    if (state == GrammarAutomaton::kDead) return false;
  }
  return automaton.accepts(state);
}

GrammarAutomaton automaton_of(const CodedFormat& format,
                              const std::vector<CallableFunction>& functions) {
  ByteGrammar grammar;
  CallGrammar calls(grammar, format, true);
  grammar.seal(calls.call(functions));
  return GrammarAutomaton(std::move(grammar));
}

std::string some_text(std::mt19937& random) {
  static const std::vector<std::string> parts = {
      "a", "Bonn", "\"", "'", "\\", "\n", "}",           ",", ":",          "<b>", "</parameter",
      "`", "é",    "😀",  " ", "<|", "[",  "</tool_call", "(", "{\"a\": 1}", "True"};
  std::string text = "t";
  for (size_t i = random() % 6; i > 0; --i) text += parts[random() % parts.size()];
  return text + "t";
}

std::vector<WrittenCall> some_calls(std::mt19937& random) {
  WrittenCall call{.name = "get_weather", .arguments = {{"town", some_text(random)}}};
  if (random() % 2 == 0) call.arguments["days"] = static_cast<int>(random() % 100) - 50;
  if (random() % 2 == 0) call.arguments["exact"] = random() % 2 == 0;
  if (random() % 2 == 0) call.arguments["at"] = {{"lat", 50.5}};
  return {std::move(call)};
}

TEST(CallGrammar, WritersWriteWhatReadersReadAndGrammarsAccept) {
  std::mt19937 random(1);
  for (const AnswerFormat& row : answer_formats()) {
    SCOPED_TRACE(row.name);
    const auto format = format_as_text(row.name);
    const AnswerReading reading{.format = format, .functions = weather_functions()};
    GrammarAutomaton automaton = automaton_of(*format, weather_functions());
    AnswerReading begun = reading;
    begun.start = answer_start(*format, row.channels.open.empty() ? "" : "<|start|>assistant");
    for (int i = 0; i < 60; ++i) {
      const auto calls = some_calls(random);
      const std::string text = write_calls(row, calls);
      const ParsedAnswer parsed = parse_in_steps(begun, text, 0, 1);
      ASSERT_EQ(parsed.calls.size(), 1u) << text;
      EXPECT_TRUE(parsed.whole[0]);
      EXPECT_EQ(nlohmann::json::parse(parsed.calls[0].second), nlohmann::json(calls[0].arguments))
          << text;
      EXPECT_EQ(parsed.content, "");
      const std::string end = row.channels.open.empty() ? "" : row.calls.close;
      EXPECT_TRUE(accepts(automaton, text.substr(0, text.size() - end.size()))) << text;
    }
  }
}

TEST(CallGrammar, WhatItAcceptsIsACall) {
  std::mt19937 random(2);
  for (const AnswerFormat& row : answer_formats()) {
    SCOPED_TRACE(row.name);
    const auto format = format_as_text(row.name);
    AnswerReading reading{.format = format, .functions = weather_functions()};
    reading.start = answer_start(*format, row.channels.open.empty() ? "" : "<|start|>assistant");
    GrammarAutomaton automaton = automaton_of(*format, weather_functions());
    int whole = 0;
    for (int i = 0; i < 12; ++i) {
      const std::string text = sample(automaton, random);
      if (text.empty()) continue;
      ++whole;
      const ParsedAnswer parsed = parse_in_steps(reading, text, text.size(), 1);
      ASSERT_EQ(parsed.calls.size(), 1u) << text;
      EXPECT_TRUE(parsed.whole[0]) << text;
      EXPECT_EQ(parsed.content, "") << text;
      EXPECT_TRUE(nlohmann::json::accept(parsed.calls[0].second)) << parsed.calls[0].second;
    }
    EXPECT_GT(whole, 1);
  }
}

// The bundled tokenizer, where a byte is a token, with marks as tokens.
Tokenizer tokenizer_with(const std::vector<std::string>& marks) {
  Json json = Json::parse(read_file(source_path("models/needle-3m/tokenizer.json")));
  json["added_tokens"] = Json::array();
  int id = 256;
  for (const std::string& mark : marks) {
    json["added_tokens"].push_back({{"id", id++},
                                    {"content", mark},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  return Tokenizer::parse(json.dump(), "", "marked");
}

// Calls that the model may make, where marks are tokens.
TEST(CallGrammar, WhatItAcceptsBehindAMarkIsACall) {
  std::mt19937 random(3);
  int formats = 0;
  for (const AnswerFormat& row : answer_formats()) {
    const auto format = std::make_shared<const CodedFormat>(row, tokenizer_with(row.marks()));
    const bool channels = !row.channels.open.empty();
    const std::string mark(
        without_blanks(channels ? format->row.channels.open : format->row.call_mark()));
    if (mark.size() != 1 || !MarkCodes::is_code(mark[0])) continue;
    ++formats;
    SCOPED_TRACE(row.name);
    ByteGrammar grammar;
    grammar.seal(CallGrammar(grammar, *format, false).behind_mark(weather_functions(), false));
    GrammarAutomaton automaton(std::move(grammar));
    AnswerReading reading{.format = format, .functions = weather_functions()};
    if (channels) reading.start.kind = AnswerStart::Kind::kHeader;
    int whole = 0;
    for (int i = 0; i < 12; ++i) {
      const std::string text = sample(automaton, random);
      const bool part = channels && text.find(row.channels.recipient) == std::string::npos;
      if (text.empty() || part) continue;
      ++whole;
      const std::string answer = mark + text;
      const ParsedAnswer parsed = parse_in_steps(reading, answer, 0, 1);
      ASSERT_GE(parsed.calls.size(), 1u) << text;
      EXPECT_EQ(std::count(parsed.whole.begin(), parsed.whole.end(), false), 0) << text;
      EXPECT_EQ(parsed.content, "") << text;
    }
    EXPECT_GT(whole, 0);
  }
  EXPECT_GT(formats, 15);
}

// A thought, then the call.
TEST(CallGrammar, ThoughtsBeforeCalls) {
  const auto format = format_as_text("hermes");
  for (const bool open : {false, true}) {
    ByteGrammar grammar;
    CallGrammar calls(grammar, *format, true);
    grammar.seal(calls.behind_thought(format->row.thoughts, open, calls.call(weather_functions())));
    GrammarAutomaton automaton(std::move(grammar));
    const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    EXPECT_EQ(accepts(automaton, call), !open);
    EXPECT_TRUE(accepts(automaton, (open ? "" : "<think>") + ("I <</think <</think>\n\n" + call)));
    EXPECT_FALSE(accepts(automaton, "<think>never"));
  }
}

// Texts in tags have no quotes: what they are to match is said to be ignored.
TEST(CallGrammar, LengthsOfTextsInTags) {
  const std::vector<CallableFunction> functions{
      {"f", Json::parse(R"({"type": "object", "properties": {
                "a": {"type": "string", "maxLength": 3}, "b": {"type": "string"}}})")}};
  for (const char* const name : {"qwen-tags", "hermes"}) {
    const auto format = format_as_text(name);
    ByteGrammar grammar;
    CallGrammar calls(grammar, *format, true);
    calls.call(functions);
    EXPECT_EQ(calls.ignored().size(), name == std::string("qwen-tags") ? 1 : 0) << name;
  }
}

// Parameters behind references, as Pydantic writes them, and without a type.
TEST(CallGrammar, SchemasOfParameters) {
  const std::vector<CallableFunction> functions{
      {"f", Json::parse(R"({"$ref": "#/$defs/F", "$defs": {
                "F": {"type": "object", "properties": {"a": {"$ref": "#/$defs/C"}},
                      "required": ["a"]},
                "C": {"enum": ["red", "blue"], "type": "string"}}})")},
      {"g", Json::parse(R"({"properties": {"a": {"const": "red"}}, "required": ["a"]})")},
      {"h", Json::parse(R"({"oneOf": [{"type": "object", "properties": {"a": {"const": "red"}},
                                       "required": ["a"]}]})")}};
  for (const char* const name : {"qwen-tags", "hermes", "python-calls"}) {
    const auto format = format_as_text(name);
    GrammarAutomaton automaton = automaton_of(*format, functions);
    for (const auto& function : functions) {
      for (const char* const value : {"red", "green"}) {
        if (function.name == "h" && name != std::string("hermes")) continue;
        const WrittenCall call{.name = function.name, .arguments = {{"a", value}}};
        EXPECT_EQ(accepts(automaton, write_calls(format->row, {&call, 1})),
                  value == std::string("red"))
            << name << " " << function.name;
      }
    }
  }
}

// Schemas that no grammar expresses: an error where the call is required, else any arguments.
TEST(CallGrammar, SchemasBeyondTheGrammar) {
  const std::vector<CallableFunction> functions{
      {"f", Json::parse(R"({"type": "object", "properties": {"a": {"$ref": "#x"}}})")}};
  for (const AnswerFormat& row : answer_formats()) {
    const CodedFormat format(row);
    ByteGrammar grammar;
    EXPECT_ANY_THROW(CallGrammar(grammar, format, true).call(functions)) << row.name;
    CallGrammar calls(grammar, format, false);
    grammar.seal(calls.call(functions));
    GrammarAutomaton automaton(std::move(grammar));
    const WrittenCall call{.name = "f", .arguments = {{"a", "x"}, {"b", "y"}}};
    std::string text = write_calls(row, {&call, 1});
    if (!row.channels.open.empty()) text.resize(text.size() - row.calls.close.size());
    EXPECT_TRUE(accepts(automaton, text)) << text;
  }
}

}  // namespace
}  // namespace fasa::text
