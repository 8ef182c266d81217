// A state's mask holds exactly the tokens whose bytes the grammar accepts next.
#include "runtime/text/grammar/token_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "runtime/text/grammar/schema_grammar.h"

namespace fasa::text {
namespace {

ByteGrammar grammar_of(const char* schema) {
  const OrderedJson json = OrderedJson::parse(schema);
  ByteGrammar grammar;
  grammar.seal(SchemaGrammar(grammar, json, "schema").build());
  return grammar;
}

// Single bytes, pieces of JSON, words with common prefixes, parts of UTF-8 characters; 0 and 300
// have no bytes.
std::shared_ptr<const TokenTable> some_tokens() {
  std::vector<std::string> tokens = {""};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* text :
       {"{\"", "\":",   "\": ", "\", \"", "\"}",    "}}",    "[]",   "]}",           "[[", "[1",
        "12",  "123",   "1234", "true",   "tru",    "false", "null", "name",         "na", "\"na",
        "\\u", "\\ud8", "é",    "\xc3",   "\xa9\"", " \n",   "\n  ", "\"name\": \"", "},"}) {
    tokens.emplace_back(text);
  }
  tokens.resize(300);
  tokens.emplace_back("");
  return std::make_shared<TokenTable>(std::move(tokens));
}

bool has(const TokenGrammar::Mask& mask, int32_t id) {
  const auto at = static_cast<size_t>(id);
  return (mask[at / 64] >> (at % 64) & 1) != 0;
}

class TokenGrammarTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenGrammarTest, MasksAreWhatTheAutomatonTakes) {
  const auto tokens = some_tokens();
  TokenGrammar grammar(grammar_of(GetParam()), tokens);
  GrammarAutomaton automaton(grammar_of(GetParam()));
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    TokenGrammar::Text text = grammar.begin();
    std::string written;
    for (int step = 0; step < 40 && !grammar.is_whole(text); ++step) {
      const auto mask = grammar.allowed(text);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < tokens->end_id(); ++id) {
        const std::string whole = written + std::string(tokens->bytes(id));
        GrammarAutomaton::State state = automaton.start();
        for (const char byte : whole) {
          if (state != GrammarAutomaton::kDead) {
            state = automaton.next(state, static_cast<unsigned char>(byte));
          }
        }
        const bool expected = state != GrammarAutomaton::kDead && !tokens->bytes(id).empty();
        ASSERT_EQ(has(*mask, id), expected) << whole;
        if (expected) allowed.push_back(id);
      }
      ASSERT_FALSE(allowed.empty());
      const int32_t taken = allowed[random() % allowed.size()];
      grammar.push(text, taken);
      written += tokens->bytes(taken);
    }
    if (grammar.is_whole(text)) {
      EXPECT_TRUE(grammar.may_end(text));
      EXPECT_TRUE(nlohmann::json::accept(written)) << written;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schemas, TokenGrammarTest,
                         ::testing::Values(R"({"type": "object"})",
                                           R"({"enum": ["name", "na", 123]})",
                                           R"({"properties": {"name": {"type": "string"},
                                             "n": {"type": "integer"}}, "required": ["n"]})",
                                           R"({"type": "array", "items": {"type": "string",
                                             "maxLength": 2}, "maxItems": 3})"));

TEST(TokenGrammar, RefusesWhatIsNotAllowed) {
  TokenGrammar grammar(grammar_of(R"({"const": true})"), some_tokens());
  TokenGrammar::Text text = grammar.begin();
  EXPECT_THROW(grammar.push(text, 0), InputError);
  EXPECT_THROW(grammar.push(text, 'x' + 1), InputError);
  EXPECT_THROW(grammar.push(text, -1), InputError);
  EXPECT_THROW(grammar.push(text, 100'000), InputError);
  for (const char byte : std::string_view("true")) grammar.push(text, byte + 1);
  EXPECT_TRUE(grammar.is_whole(text));
}

TEST(TokenGrammar, AVocabularyThatCannotSpellItSaysSo) {
  TokenGrammar grammar(grammar_of(R"({"const": true})"),
                       std::make_shared<TokenTable>(std::vector<std::string>{"a", "b"}));
  TokenGrammar::Text text = grammar.begin();
  EXPECT_THROW(grammar.allowed(text), InputError);
}

// More states than the cache holds: a state that was evicted is computed again, with the same mask.
TEST(TokenGrammar, ForgettingChangesNothing) {
  const auto tokens = some_tokens();
  TokenGrammar grammar(
      grammar_of(
          R"({"type": "array", "items": {"type": "string", "minLength": 64}, "minItems": 140})"),
      tokens);
  TokenGrammar::Text first = grammar.begin();
  grammar.push(first, '[' + 1);
  TokenGrammar::Text text = first;
  for (int item = 0; item < 140; ++item) {
    std::string written = (item == 0 ? "\"" : ",\"") + std::string(64, 'a') + "\"";
    for (const char byte : written) {
      const bool looked_at = byte != 'a';
      EXPECT_TRUE(!looked_at || has(*grammar.allowed(text), byte + 1));
      grammar.push(text, byte + 1);
    }
    EXPECT_FALSE(grammar.is_whole(text));
  }
  EXPECT_LT(grammar.bytes(), size_t{64} << 20);
  EXPECT_TRUE(has(*grammar.allowed(first), '"' + 1));
  grammar.push(text, ']' + 1);
  EXPECT_TRUE(grammar.is_whole(text));
}

}  // namespace
}  // namespace fasa::text
