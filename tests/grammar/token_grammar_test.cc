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
// have no bytes. Behind them words of some letters, most of which are plain text.
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
  const std::vector<std::string> letters = {
      "a", "b", " ", "1", "é", "\xe4\xb8\xad", ",", "a1", "ab", "\xf0\x9f\x98\x80"};
  const std::vector<std::string> rare = {"\"", "\\", "\n", "\xe4", "\xb8", "\xe4\xb8", "<"};
  std::mt19937 random(7);
  for (const char* const end : {"", "\"", "\xc3"}) tokens.push_back(std::string(40, 'a') + end);
  while (tokens.size() < 1000) {
    std::string word;
    for (size_t left = 1 + random() % 6; left > 0; --left) {
      const auto& from = random() % 40 == 0 ? rare : letters;
      word += from[random() % from.size()];
    }
    tokens.push_back(std::move(word));
  }
  return std::make_shared<TokenTable>(std::move(tokens));
}

bool has(const TokenGrammar::Mask& mask, int32_t id) {
  const auto at = static_cast<size_t>(id);
  return (mask[at / 64] >> (at % 64) & 1) != 0;
}

GrammarAutomaton::State state_behind(GrammarAutomaton& automaton, GrammarAutomaton::State state,
                                     std::string_view bytes) {
  for (const char byte : bytes) {
    if (state == GrammarAutomaton::kDead) break;
    state = automaton.next(state, static_cast<unsigned char>(byte));
  }
  return state;
}

// Compares masks with what the automaton takes token by token, while random tokens are written.
// Returns whether the text is whole.
bool masks_agree(TokenGrammar& grammar, GrammarAutomaton& automaton, const TokenTable& tokens,
                 std::mt19937& random, std::string& written) {
  TokenGrammar::Text text = grammar.begin();
  for (int step = 0; step < 40 && !grammar.is_whole(text); ++step) {
    const GrammarAutomaton::State here = state_behind(automaton, automaton.start(), written);
    std::vector<int32_t> expected;
    for (int32_t id = 0; id < tokens.end_id(); ++id) {
      const std::string_view bytes = tokens.bytes(id);
      if (!bytes.empty() && state_behind(automaton, here, bytes) != GrammarAutomaton::kDead) {
        expected.push_back(id);
      }
    }
    if (expected.empty() && !automaton.accepts(here)) {
      EXPECT_THROW(grammar.allowed(text), InputError) << written;
      return false;
    }
    const auto mask = grammar.allowed(text);
    EXPECT_TRUE(grammar.is_known(text));
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < tokens.end_id(); ++id) {
      if (has(*mask, id)) allowed.push_back(id);
    }
    EXPECT_EQ(allowed, expected) << written;
    if (::testing::Test::HasFailure() || allowed.empty()) return false;
    const int32_t taken = allowed[random() % allowed.size()];
    grammar.push(text, taken);
    written += tokens.bytes(taken);
  }
  return grammar.is_whole(text);
}

class TokenGrammarTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenGrammarTest, MasksAreWhatTheAutomatonTakes) {
  const auto tokens = some_tokens();
  TokenGrammar grammar(grammar_of(GetParam()), tokens);
  GrammarAutomaton automaton(grammar_of(GetParam()));
  std::mt19937 random(3);
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    std::string written;
    if (masks_agree(grammar, automaton, *tokens, random, written)) {
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
                                             "maxLength": 2}, "maxItems": 3})",
                                           R"({"type": "string", "minLength": 3, "maxLength": 40})",
                                           R"({"type": "string", "pattern": "^[a1é ]{2,9}<?b*$"})",
                                           R"({"type": "string", "maxLength": 150})",
                                           R"({"type": "array", "items": {"type": "integer"},
                                             "minItems": 60, "maxItems": 90})",
                                           R"({"type": "string"})"));

// Small grammars of few letters: rules that begin with a byte, so that they may be recursive, and
// repetitions of one of them.
ByteGrammar random_grammar(std::mt19937& random) {
  using Symbol = ByteGrammar::Symbol;
  ByteGrammar grammar;
  const auto below = [&](size_t count) { return random() % count; };
  const auto some_byte = [&] {
    ByteSet set;
    for (size_t left = 1 + below(3); left > 0; --left) {
      set.set(static_cast<unsigned char>("abc\"\xc3\xa9\xaa"[below(7)]));
    }
    return grammar.byte_of(set);
  };
  std::vector<ByteGrammar::Rule> rules(2 + below(4));
  for (auto& rule : rules) rule = grammar.new_rule();
  for (const auto rule : rules) {
    for (size_t left = 1 + below(3); left > 0; --left) {
      std::vector<Symbol> symbols = {some_byte()};
      while (below(2) == 0) {
        symbols.push_back(below(3) > 0 ? some_byte() : rules[below(rules.size())]);
      }
      grammar.add(rule, symbols);
    }
  }
  ByteGrammar::Rule rest = grammar.new_rule();
  grammar.add(rest, {below(2) == 0 ? some_byte() : rules[0]});
  const auto repeated = rules[below(rules.size())];
  const size_t most = below(80), least = below(80);
  for (size_t count = 0; count < most; ++count) {
    const auto longer = grammar.new_rule();
    grammar.add(longer, {repeated, rest});
    if (count < least) grammar.add(longer, {rest});
    rest = longer;
  }
  grammar.seal(rest);
  return grammar;
}

// Words of the same letters; some of them are long.
std::shared_ptr<const TokenTable> random_tokens(std::mt19937& random) {
  std::vector<std::string> tokens = {"", "a", "b", "c", "\"", "\xc3", "\xa9", "\xaa"};
  const std::vector<std::string> letters = {"a", "b", "c", "\xc3\xa9", "\xc3\xaa", "\"", "\xa9"};
  while (tokens.size() < 200) {
    const bool is_long = random() % 10 == 0;
    const size_t kinds = 1 + random() % letters.size();
    std::string word;
    for (size_t left = (is_long ? 25 : 1) + random() % 16; left > 0; --left) {
      word += letters[random() % kinds];
    }
    tokens.push_back(std::move(word));
  }
  return std::make_shared<TokenTable>(std::move(tokens));
}

TEST(TokenGrammar, MasksOfRandomGrammars) {
  int grammars = 0;
  for (uint32_t seed = 0; seed < 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed), same(seed);
    try {
      GrammarAutomaton automaton(random_grammar(random));
      const auto tokens = random_tokens(random);
      TokenGrammar grammar(random_grammar(same), tokens);
      for (int round = 0; round < 2; ++round) {
        std::string written;
        masks_agree(grammar, automaton, *tokens, random, written);
      }
      ++grammars;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), ::testing::AnyOf(::testing::HasSubstr("no text matches"),
                                                 ::testing::HasSubstr("too complex")));
    }
  }
  EXPECT_GT(grammars, 150);
}

// Two places in a string that are far from its end have one mask.
TEST(TokenGrammar, CountersShareMasks) {
  const auto tokens = some_tokens();
  for (const char* const schema :
       {R"({"type": "string", "maxLength": 400})", R"({"type": "string", "minLength": 400})",
        R"({"type": "string", "pattern": "^[a1é ]{2,400}$"})"}) {
    TokenGrammar grammar(grammar_of(schema), tokens);
    TokenGrammar::Text text = grammar.begin();
    grammar.push(text, '"' + 1);  // the id of a byte is one more
    for (int count = 0; count < 300; ++count) {
      grammar.allowed(text);
      grammar.push(text, 'a' + 1);
    }
    EXPECT_LE(grammar.computed_masks(), 8u) << schema;
  }
}

// States of lists in lists do not, at an end of which other things may follow.
TEST(TokenGrammar, NestingIsNoCounter) {
  const auto tokens = some_tokens();
  TokenGrammar grammar(grammar_of(R"({"type": "array"})"), tokens);
  TokenGrammar::Text text = grammar.begin();
  for (int depth = 1; depth < 12; ++depth) {
    grammar.allowed(text);
    grammar.push(text, '[' + 1);
    EXPECT_EQ(grammar.computed_masks(), static_cast<uint64_t>(depth));
  }
}

// Branches of plain text are taken whole; those with a quote, long ones and parts of characters are
// not.
TEST(TokenGrammar, RunsTakeWhatAStringTakes) {
  GrammarAutomaton automaton(grammar_of(R"({"type": "string", "maxLength": 20})"));
  CharacterRuns runs(automaton);
  const auto inside = state_behind(automaton, automaton.start(), "\"ab");
  const auto contents = [](std::string_view bytes, uint32_t characters, bool others) {
    TokenTrie::Contents found{.others = others, .characters = characters};
    for (const char byte : bytes) {
      found.ascii[static_cast<size_t>(byte) / 64] |= uint64_t{1} << (byte % 64);
    }
    return found;
  };
  EXPECT_TRUE(runs.take(inside, contents("a Z~{", 18, true)));
  EXPECT_FALSE(runs.take(inside, contents("a", 19, false)));
  EXPECT_FALSE(runs.take(inside, contents("a\"", 2, false)));
  EXPECT_FALSE(runs.take(inside, contents("a\n", 2, false)));
  EXPECT_FALSE(runs.take(automaton.start(), contents("a", 1, false)));
  const auto half = state_behind(automaton, inside, "\xe4\xb8");
  EXPECT_FALSE(runs.take(half, contents("a", 1, false)));

  const auto node_of = [](const TokenTrie& trie, uint32_t depth, unsigned char byte) {
    return *std::find_if(trie.nodes().begin(), trie.nodes().end(), [&](const TokenTrie::Node& one) {
      return one.depth == depth && one.byte == byte;
    });
  };
  std::vector<std::string> words;
  for (char last = 'a'; last <= 'z'; ++last) {
    words.push_back(std::string("x") + last);
    words.push_back(std::string("y\xe4\xb8") + last);
    words.push_back(std::string("\xe4\xb8\xad") + last);
    words.push_back(std::string("w\xe4\xb8\xad") + last);
    words.push_back("z" + std::string(40, ' ') + last);
  }
  const TokenTable tokens(words);
  const TokenTrie& trie = tokens.trie();
  const TokenTrie::Node x = node_of(trie, 1, 'x');
  ASSERT_GE(x.contents, 0);
  EXPECT_EQ(trie.contents(x).characters, 1U);
  EXPECT_FALSE(trie.contents(x).others);
  EXPECT_EQ(trie.nodes()[x.end].first - x.first, 26U);
  EXPECT_EQ(node_of(trie, 1, 'y').contents, -1);
  EXPECT_EQ(node_of(trie, 1, 'z').contents, -1);
  EXPECT_EQ(node_of(trie, 2, 0xb8).contents, -1);
  EXPECT_GE(node_of(trie, 3, 0xad).contents, 0);
  EXPECT_EQ(node_of(trie, 1, 0xe4).contents, -1);
  EXPECT_TRUE(trie.contents(node_of(trie, 1, 'w')).others);
}

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
