// Every text that a schema's grammar accepts is JSON valid under the schema; an unsupported keyword
// is rejected by name.
#include "runtime/text/grammar/schema_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/text/grammar/grammar_automaton.h"
#include "runtime/text/grammar/schema_error.h"
#include "tests/grammar/schema_oracle.h"

namespace fasa::text {
namespace {

using Json = OrderedJson;
using ::testing::HasSubstr;

ByteGrammar grammar_of(const Json& schema) {
  ByteGrammar grammar;
  const auto rule = SchemaGrammar(grammar, schema, "schema").build();
  grammar.seal(rule);
  return grammar;
}

bool matches(GrammarAutomaton& automaton, const std::string& text) {
  GrammarAutomaton::State state = automaton.start();
  for (const char byte : text) {
    state = automaton.next(state, static_cast<unsigned char>(byte));
    if (state == GrammarAutomaton::kDead) return false;
  }
  return automaton.accepts(state);
}

bool matches(const Json& schema, const std::string& text) {
  GrammarAutomaton automaton(grammar_of(schema));
  return matches(automaton, text);
}

// A random text that the automaton accepts, byte by byte; steered towards its end once it is long.
std::string some_text(GrammarAutomaton& automaton, std::mt19937& random, size_t length) {
  std::string text;
  GrammarAutomaton::State state = automaton.start();
  for (;;) {
    std::vector<unsigned char> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      const auto value = static_cast<unsigned char>(byte);
      if (automaton.next(state, value) != GrammarAutomaton::kDead) bytes.push_back(value);
    }
    if (automaton.accepts(state) && (bytes.empty() || text.size() > length)) return text;
    EXPECT_FALSE(bytes.empty()) << "nothing can follow " << text;
    if (bytes.empty()) return text;
    unsigned char byte = bytes[random() % bytes.size()];
    if (text.size() > length) {
      for (const char closing : std::string_view("\"]}")) {
        const auto value = static_cast<unsigned char>(closing);
        if (std::find(bytes.begin(), bytes.end(), value) == bytes.end()) continue;
        byte = value;
        break;
      }
    }
    text += static_cast<char>(byte);
    state = automaton.next(state, byte);
  }
}

const std::vector<const char*>& schemas() {
  static const std::vector<const char*> list = {
      R"({"type": "object"})",
      R"(true)",
      R"({"type": "string"})",
      R"({"type": "string", "minLength": 2, "maxLength": 5})",
      R"({"type": "string", "minLength": 3})",
      R"({"type": "integer"})",
      R"({"type": "integer", "minimum": -17, "maximum": 2304})",
      R"({"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 1001})",
      R"({"type": "integer", "maximum": -5})",
      R"({"type": "number"})",
      R"({"type": "number", "minimum": -1.5, "exclusiveMaximum": 2})",
      R"({"type": "number", "exclusiveMinimum": 0.25, "maximum": 0.375})",
      R"({"type": "number", "exclusiveMinimum": -3, "maximum": -0.05})",
      R"({"minimum": 99.5})",
      R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], )"
      R"("items": {"type": "boolean"}, "minItems": 1, "maxItems": 4})",
      R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], )"
      R"("items": false})",
      R"({"type": "string", "minLength": 70, "maxLength": 300})",
      R"({"type": ["boolean", "null"]})",
      R"({"enum": ["red", "re\"d", 5, null, {"a": [1]}]})",
      R"({"type": "string", "enum": ["x", 5, "xy"]})",
      R"({"const": "é"})",
      R"({"type": "array"})",
      R"({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4})",
      R"({"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1})",
      R"({"type": "array", "maxItems": 0})",
      R"({"type": "object", "additionalProperties": {"type": "integer"}})",
      R"({"type": "object", "additionalProperties": false})",
      R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
          "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}}},
          "required": ["age"], "additionalProperties": false})",
      R"({"type": "object", "properties": {"a": true}, "required": ["a", "b"],
          "additionalProperties": {"type": "null"}})",
      R"({"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"k": {"const": 1}}}]})",
      R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, )"
      R"("x": {"type": "null"}},
                     "required": ["kind"]},
                    {"type": "object", "properties": {"kind": {"const": "b"}}, )"
      R"("required": ["kind"]}]})",
      R"({"allOf": [{"type": "boolean"}]})",
      R"({"$defs": {"node": {"type": "object", "properties": {"value": {"type": "integer"},
          "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
          "required": ["value", "next"], "additionalProperties": false}}, "$ref": "#/$defs/node"})",
      R"({"type": "object", "properties": {"children": {"type": "array", "items": )"
      R"({"$ref": "#"}}}})"};
  return list;
}

TEST(SchemaGrammar, WhatItLetsThroughParsesAndHolds) {
  std::mt19937 random(7);
  for (const char* text : schemas()) {
    const Json schema = Json::parse(text);
    const SchemaOracle oracle(schema);
    GrammarAutomaton automaton(grammar_of(schema));
    for (size_t round = 0; round < 60; ++round) {
      const std::string made = some_text(automaton, random, 3 * round);
      const Json value = Json::parse(made, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << text << "\n" << made;
      ASSERT_TRUE(oracle.holds(value)) << text << "\n" << made;
    }
  }
}

TEST(SchemaGrammar, LetsThroughWhatItShould) {
  const auto expect = [](const char* schema, const std::vector<const char*>& good,
                         const std::vector<const char*>& bad) {
    GrammarAutomaton automaton(grammar_of(Json::parse(schema)));
    for (const char* text : good) EXPECT_TRUE(matches(automaton, text)) << schema << " " << text;
    for (const char* text : bad) EXPECT_FALSE(matches(automaton, text)) << schema << " " << text;
  };
  expect(R"({"type": "object"})",
         {"{}", R"({"a": 1})",
          "{\n  \"a\": [1, {}, null, -0.5e-7],\n  \"\": \"\\u00e9\\ud83d\\ude00\"\n}"},
         {"", "[]", "{", "{}}", "{a: 1}", R"({"a": 01})", R"({"a": 1,})", R"({"a": "\x"})",
          R"({"a": "\ud83d"})", "{\"a\": \"\xff\"}", "{\"a\": \"\n\"}", R"({"a": .5})"});
  expect(R"({"type": "integer", "minimum": -17, "maximum": 2304})",
         {"-17", "-1", "0", "9", "10", "999", "1000", "2299", "2304"},
         {"-18", "-0", "2305", "00", "1.0", "-20", "+1", "9999"});
  expect(R"({"type": "string", "minLength": 2, "maxLength": 3})", {"\"ab\"", "\"éü\"", "\"a\\n😀\""},
         {"\"a\"", "\"\"", "\"abcd\"", "\"\\n\""});
  expect(R"({"type": "number", "minimum": 0, "maximum": 1})",
         {"0", "1", "0.5", "0.0", "1.000", "0.999999999999999"},
         {"-1", "1.1", "1.0000001", "-0.1", "2", "0.", "1e0"});
  expect(R"({"type": "number", "exclusiveMinimum": -0.5, "exclusiveMaximum": 12.25})",
         {"-0.49", "0", "7.75", "12", "12.2", "12.249", "12.0"},
         {"-0.5", "-0.50", "12.25", "12.3", "13", "-1", "-0.51"});
  expect(R"({"type": "number", "minimum": 1.25, "maximum": 1.27})",
         {"1.25", "1.26", "1.2699", "1.27", "1.270"}, {"1.2", "1.3", "1.249", "1.271", "1", "2"});
  expect(R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "minItems": 1})",
         {"[1]", "[1, 2]", R"([1, 2, "x", {}])"}, {"[]", "[2]", "[1, 1]", "[1,]"});
  expect(R"({"type": "array", "prefixItems": [{"const": 1}], "items": false})", {"[]", "[1]"},
         {"[1, 1]"});
  const auto pattern = [](const std::string& text) {
    return Json{{"type", "string"}, {"pattern", text}}.dump();
  };
  expect(pattern("^[A-Z]{2,3}-\\d+$").c_str(), {R"("AB-1")", R"("ABC-00")"},
         {R"("A-1")", R"("ABCD-1")", R"("AB-")", R"("xAB-1")", R"("AB-1 ")"});
  expect(pattern("^(foo|ba[rz]?)\\.(?:\\w|é)*$").c_str(), {R"("foo.")", R"("ba.")", R"("baz._é9")"},
         {R"("foo")", R"("bax.")", R"("foo.-")"});
  expect(pattern("b+").c_str(), {R"("b")", R"("abbc")", R"("é\n b")"}, {R"("")", R"("ac")"});
  expect(pattern("^a|c$").c_str(), {R"("ab")", R"("bc")"}, {R"("ba")", R"("cb")"});
  expect(pattern("^(a+)+$").c_str(), {R"("a")", R"("aaaa")"}, {R"("")", R"("ab")"});
  expect(pattern(R"(^["\\\n][^\s"]$)").c_str(), {R"("\"x")", R"("\\x")", R"("\nx")"},
         {R"("x")", R"("\" ")", R"("\"é")", R"("\"\"")"});
  expect(pattern("^.{2}$").c_str(), {R"("éx")"}, {R"("x")", R"("x\n")", R"("xyz")"});
  expect(pattern("").c_str(), {R"("")", R"("any")"}, {});
  const std::string quote = "\"", letters(63, 'x'), long_text = quote + letters + letters + quote;
  const std::string longer = quote + letters + "yyy" + letters + quote;
  expect(R"({"type": "string", "minLength": 126, "maxLength": 128})", {long_text.c_str()},
         {longer.c_str(), "\"x\""});
  expect(R"({"type": "string", "format": "date-time"})", {"\"2026-11-22T23:59:00+01:00\""},
         {"\"2026-13-22T23:59:00Z\"", "\"2026-11-22\"", "\"2026-02-31T00:00:00Z\""});
  expect(R"({"type": "string", "format": "uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""},
         {"\"123e4567e89b12d3a456426614174000\""});
  expect(
      R"({"properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"]})",
      {R"({"a": 1, "b": null})", R"({"b":null})"},
      {"{}", R"({"a": 1})", R"({"b": null, "a": 1})", R"({"b": null, "c": 1})", R"({, "b":null})"});
  expect(R"({"type": "array", "items": {"const": 1}, "minItems": 1, "maxItems": 2})",
         {"[1]", "[1, 1]", "[ 1,1 ]"}, {"[]", "[1,1,1]", "[1,]", "[2]"});
}

TEST(SchemaGrammar, NamesWhatItCannotExpress) {
  const auto location_of = [](const char* schema) -> std::string {
    try {
      grammar_of(Json::parse(schema));
    } catch (const SchemaError& error) {
      EXPECT_THAT(error.what(), HasSubstr(error.place()));
      return error.place();
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_EQ(location_of(R"({"properties": {"x": {"type": "number", "minimum": "0"}}})"),
            "schema.properties.x.minimum");
  EXPECT_EQ(location_of(R"({"type": "number", "minimum": 1, "exclusiveMaximum": 1})"), "schema");
  EXPECT_EQ(location_of(R"({"prefixItems": [7]})"), "schema.prefixItems[0]");
  EXPECT_EQ(location_of(R"({"type": "strong"})"), "schema.type");
  EXPECT_EQ(location_of(R"({"type": []})"), "schema.type");
  EXPECT_EQ(location_of(R"({"type": "string", "minLength": -1})"), "schema.minLength");
  EXPECT_EQ(location_of(R"({"type": "string", "maxLength": 1000001})"), "schema.maxLength");
  EXPECT_EQ(location_of(R"({"type": "string", "minLength": 3, "maxLength": 2})"),
            "schema.maxLength");
  EXPECT_EQ(location_of(R"({"type": "integer", "minimum": 5, "maximum": 4})"), "schema");
  EXPECT_EQ(location_of(R"({"type": "integer", "minimum": 1e300})"), "schema");
  EXPECT_EQ(location_of(R"({"type": "integer", "enum": ["a"]})"), "schema.enum");
  EXPECT_EQ(location_of(R"({"$ref": "#/nowhere"})"), "schema.$ref");
  EXPECT_EQ(location_of(R"({"$ref": "http://elsewhere"})"), "schema.$ref");
  EXPECT_EQ(location_of(R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})"), "schema.oneOf");
  EXPECT_EQ(location_of(R"({"required": ["a"], "additionalProperties": false})"),
            "schema.required");
  EXPECT_EQ(location_of(R"({"properties": 5})"), "schema.properties");
  EXPECT_EQ(location_of("7"), "schema");
  EXPECT_EQ(location_of("false"), "schema");
  // No value matches: it would have to contain itself.
  EXPECT_THAT(location_of(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
              HasSubstr("no text"));
  EXPECT_THAT(location_of(R"({"$ref": "#"})"), HasSubstr("no text"));
}

TEST(SchemaGrammar, NamesWhatItDoesNotEnforce) {
  const Json schema = Json::parse(R"({"properties": {
      "mail": {"type": "string", "format": "email", "maxLength": 9},
      "day": {"type": "string", "format": "date"},
      "even": {"type": ["integer", "number"], "multipleOf": 2},
      "set": {"type": "array", "uniqueItems": true}, "list": {"uniqueItems": false}},
      "discriminator": {"propertyName": "kind"}})");
  ByteGrammar grammar;
  SchemaGrammar reader(grammar, schema, "schema");
  reader.build();
  EXPECT_THAT(reader.ignored(), ::testing::ElementsAre("schema.properties.mail.format",
                                                       "schema.properties.even.multipleOf",
                                                       "schema.properties.set.uniqueItems"));
}

TEST(SchemaGrammar, WhatOnlyNarrowsIsNamed) {
  const auto ignored_of = [](const Json& schema) {
    ByteGrammar grammar;
    SchemaGrammar reader(grammar, schema, "s");
    reader.build();
    std::string names;
    for (const std::string& name : reader.ignored()) names += (names.empty() ? "" : " ") + name;
    return names;
  };
  for (const char* const pattern :
       {"(?<=(a+)+)$", "(?=a)", "(a)\\1", "\\bword", "(a*)*", "a**", "(a", "a)", "[a", "a{2",
        "a{5,2}", "a{9999}", "^a^", "a$b", "\\p{L}", "[é]", "*", "\\"}) {
    EXPECT_EQ(ignored_of({{"type", "string"}, {"pattern", pattern}}), "s.pattern") << pattern;
  }
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "integer", "minimum": -9007199254740991, "maximum": 18446744073709551615})", ""},
      {R"({"type": "number", "maximum": 1.7976931348623157e308})", ""},
      {R"({"type": "object", "propertyNames": {"type": "string"}})", "s.propertyNames"},
      {R"({"type": "object", "properties": {}, "minProperties": 1})", "s.minProperties"},
      {R"({"type": "string", "pattern": "^a+$", "maxLength": 9})", "s.maxLength"},
      {R"({"type": "string", "format": "date-time", "minLength": 1})", "s.minLength"},
      {R"({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]})", "s.anyOf"},
      {R"({"type": "object", "anyOf": [{"required": ["a"]}]})", "s.type"},
      {R"({"items": {"not": {}}, "x-order": 1})", "s.items.not"},
      {R"({"enum": [1], "minimum": 2})", "s.minimum"},
      {R"({"type": "string", "enum": []})", "s.enum"},
      {R"({"if": {}, "then": {}, "contentEncoding": "base64"})", "s.if s.then s.contentEncoding"},
      {R"({"type": "STRING", "nullable": true, "required": null})", ""},
      {R"({"type": "any"})", ""},
      {R"({"$ref": "#/$defs/a", "minLength": 1, "$defs": {"a": true}})", "s.minLength"},
      {R"({"$ref": "#/definitions/R%3Cs%3E", "definitions": {"R<s>": true}})", ""},
      {R"({"allOf": [{"minLength": 1}, {"minLength": 2}]})", "s.allOf[1].minLength"}};
  for (const auto& [schema, names] : cases) EXPECT_EQ(ignored_of(Json::parse(schema)), names);
}

TEST(SchemaGrammar, OlderDraftsAndSchemasOfSeveral) {
  const auto holds = [](const char* schema, const char* text) {
    return matches(Json::parse(schema), text);
  };
  const char* const merged =
      R"({"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": {"const": 2}},
      "required": ["b"]}], "$defs": {"a": {"properties": {"a": {"const": 1}}}}})";
  EXPECT_TRUE(holds(merged, R"({"a":1,"b":2})"));
  EXPECT_FALSE(holds(merged, R"({"a":1})"));
  EXPECT_TRUE(holds(R"({"allOf": [{"$ref": "#"}, {"$ref": "#"}], "const": 1})", "1"));
  EXPECT_TRUE(holds(R"({"items": [{"const": 1}], "additionalItems": false})", "[1]"));
  EXPECT_FALSE(holds(R"({"items": [{"const": 1}], "additionalItems": false})", "[1, 1]"));
  EXPECT_FALSE(holds(R"({"type": "integer", "minimum": 1, "exclusiveMinimum": true})", "1"));
  EXPECT_TRUE(holds(R"({"type": "integer", "minimum": 1.5})", "2"));
  EXPECT_FALSE(holds(R"({"type": "integer", "minimum": 1.5})", "1"));
  EXPECT_TRUE(holds(R"({"type": "string", "nullable": true})", "null"));
  EXPECT_TRUE(holds(R"({"anyOf": [{"type": "string"}], "nullable": true})", "null"));
}

TEST(SchemaGrammar, HugeSchemasAreRefused) {
  Json values = Json::array();
  for (int i = 0; i < 1 << 16; ++i) values.push_back(i);
  EXPECT_THROW(grammar_of({{"enum", values}}), InputError);
  Json chain = Json::object();
  for (int i = 0; i < 100'000; ++i) {
    chain[std::to_string(i)] = {{"$ref", "#/$defs/" + std::to_string(i + 1)}};
    if (i == 2000) break;  // member look-up is linear
  }
  EXPECT_THROW(grammar_of({{"$defs", chain}, {"$ref", "#/$defs/0"}}), SchemaError);
  Json members = Json::object();
  for (int i = 0; i < 2000; ++i) members[std::to_string(i)] = true;
  EXPECT_THROW(grammar_of({{"properties", members}}), SchemaError);
}

// A text can be completed at any nesting depth.
TEST(SchemaGrammar, DepthEnds) {
  GrammarAutomaton automaton(grammar_of(true));
  GrammarAutomaton::State state = automaton.start();
  int depth = 0;
  for (; depth < 1000; ++depth) {
    const auto next = automaton.next(state, '[');
    if (next == GrammarAutomaton::kDead) break;
    state = next;
  }
  EXPECT_GT(depth, 30);
  EXPECT_LT(depth, 200);
  for (; depth > 0; --depth) {
    state = automaton.next(state, ']');
    ASSERT_NE(state, GrammarAutomaton::kDead);
  }
  EXPECT_TRUE(automaton.complete(state));
}

TEST(SchemaGrammar, AutomatonForgetsAndGoesOn) {
  GrammarAutomaton automaton(grammar_of(Json::parse(R"({"type": "object"})")));
  EXPECT_TRUE(matches(automaton, R"({"a": [1, 2, {"b": "c"}]})"));
  EXPECT_GT(automaton.states(), 10u);
  automaton.clear();
  EXPECT_EQ(automaton.states(), 1u);
  EXPECT_TRUE(matches(automaton, R"({"a": [1, 2, {"b": "c"}]})"));
  EXPECT_FALSE(matches(Json::parse(R"({"type": "object"})"), "[]"));
}

// For formats that spell a call's arguments one by one.
TEST(SchemaGrammar, MembersOfTheRoot) {
  const auto names = [](const char* text) {
    const Json schema = Json::parse(text);
    ByteGrammar grammar;
    std::vector<std::string> list;
    for (const auto& member : SchemaGrammar(grammar, schema, "s").build_members()) {
      list.push_back(member.name + (member.required ? "!" : ""));
    }
    return list;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(names(R"({"properties": {"a": {"type": "string"}, "b": {}}, "required": ["b"]})"),
              ElementsAre("a", "b!"));
  EXPECT_THAT(names(R"({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}}}}})"),
              ElementsAre("a"));
  EXPECT_THAT(names(R"({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]})"),
              ElementsAre("a", "b"));
  EXPECT_THAT(names(R"({"allOf": [{"allOf": [{"properties": {"a": {}}}]},
                                  {"properties": {"b": {}}}]})"),
              ElementsAre("b", "a"));
  EXPECT_THAT(names(R"({"allOf": [{"$ref": "#"}, {"$ref": "#"}]})"), ElementsAre());
  EXPECT_THAT(names(R"({"type": "object"})"), ElementsAre());
  EXPECT_THAT(names("true"), ElementsAre());
}

}  // namespace
}  // namespace fasa::text
