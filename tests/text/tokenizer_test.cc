#include "runtime/text/tokenizer.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/text/continuation.h"
#include "tests/support/source_path.h"

namespace fasa::text {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ids = std::vector<int32_t>;

json token(int id, const char* content, bool special = true) {
  return {{"id", id}, {"content", content}, {"normalized", false}, {"special", special}};
}

// Byte-level: a, b, c, blank, the bytes of U+00E9, a digit; "ab" and "abc" by merges.
json byte_level() {
  const json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", {token(10, "<|end|>"), token(11, "<think>", false)}},
          {"normalizer", nullptr},
          {"pre_tokenizer", level},
          {"post_processor", nullptr},
          {"decoder", level},
          {"model",
           {{"type", "BPE"},
            {"vocab",
             {{"a", 0},
              {"b", 1},
              {"c", 2},
              {"Ġ", 3},
              {"Ã", 4},
              {"©", 5},
              {"1", 6},
              {"ab", 7},
              {"abc", 8},
              {"Ġa", 9}}},
            {"merges", {"a b", "ab c", {"Ġ", "a"}}}}}};
}

// In SentencePiece's form, with "▁" before a text and bytes of U+00E9.
json sentence() {
  return {{"added_tokens", {token(0, "<unk>"), token(1, "<s>")}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "▁"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab",
             {{"<unk>", 0},
              {"<s>", 1},
              {"<0xC3>", 2},
              {"<0xA9>", 3},
              {"<0x0A>", 4},
              {"▁", 5},
              {"a", 6},
              {"b", 7},
              {"▁a", 8}}},
            {"merges", json::array({json::array({"▁", "a"})})}}}};
}

Tokenizer parse(const json& document, const std::string& config = "") {
  return Tokenizer::parse(document.dump(), config, "DIR");
}

std::string error_of(const json& document) {
  try {
    parse(document);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(TokenizerTest, BundledModelMapsEachByteToItself) {
  const auto tokenizer = Tokenizer::load(source_path("models/needle-3m"));
  std::string text;
  for (int c = 1; c < 0x80; ++c) text += static_cast<char>(c);
  text += "é漢😀";
  const auto ids = tokenizer.encode(text);
  ASSERT_EQ(ids.size(), text.size());
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], static_cast<unsigned char>(text[i]));
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  EXPECT_EQ(tokenizer.piece(256), "");
  EXPECT_EQ(tokenizer.decode(Ids{-1, 256, 97}), "a");
}

TEST(TokenizerTest, MergesWordsAndFindsAddedTokens) {
  const auto tokenizer = parse(byte_level());
  EXPECT_THAT(tokenizer.encode("abc a<|end|>é"), ElementsAre(8, 9, 10, 4, 5));
  EXPECT_EQ(tokenizer.decode(Ids{8, 9, 10, 4, 5}), "abc a<|end|>é");
  EXPECT_EQ(tokenizer.decode(Ids{8, 9, 10, 4, 5}, true), "abc aé");
  EXPECT_EQ(tokenizer.piece(9), "Ġa");
  EXPECT_EQ(tokenizer.token_id("<|end|>"), 10);
  EXPECT_EQ(tokenizer.token_id("nothing"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(10));
  EXPECT_FALSE(tokenizer.is_special(11));
  EXPECT_EQ(tokenizer.vocab_size(), 12);
}

TEST(TokenizerTest, WhatIsNoUtf8IsReadAsReplacements) {
  const auto tokenizer = Tokenizer::load(source_path("models/needle-3m"));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xff\xe2\x82z\xe2\x82")), "a\ufffd\ufffdz\ufffd");
  EXPECT_EQ(tokenizer.decode(Ids{0x61, 0xe2, 0x82, 0x7a}), "a\ufffdz");
}

TEST(TokenizerTest, WhatAUserTypesStaysText) {
  const auto tokenizer = parse(byte_level());
  // The vocabulary lacks its letters: a control token that is treated as text encodes to nothing.
  const Segment spelt[] = {{"a<|end|>"}, {"b<|end|><think>c", Trust::kUser}, {"<|end|>"}};
  EXPECT_THAT(tokenizer.encode(spelt, false), ElementsAre(0, 10, 1, 2, 10));
  // Two halves form a token only if both are trusted.
  const Segment halves[] = {{"<|en"}, {"d|>", Trust::kUser}, {"<|en"}, {"d|>"}};
  EXPECT_THAT(tokenizer.encode(halves, false), ElementsAre(10));
  // Words are split as in the whole text.
  const Segment parts[] = {{"a"}, {"b", Trust::kUser}, {"c"}};
  EXPECT_THAT(tokenizer.encode(parts, false), ElementsAre(8));
  EXPECT_THAT(tokenizer.encode("a<|end|>", {.parse_special = false}), ElementsAre(0));
}

TEST(TokenizerTest, AUsersBlanksMayBeTokens) {
  json document = byte_level();
  document["added_tokens"].push_back(token(12, "  ", false));
  const auto tokenizer = parse(document);
  EXPECT_THAT(tokenizer.encode("a  b", {.parse_special = false}), ElementsAre(0, 12, 1));
}

TEST(TokenizerTest, SentencePiecesHaveABlankBeforeAndBytesBehind) {
  const auto tokenizer = parse(sentence());
  EXPECT_THAT(tokenizer.encode("a é"), ElementsAre(8, 5, 2, 3));
  EXPECT_THAT(tokenizer.encode("", {.add_special = true}), ElementsAre(1));
  EXPECT_THAT(tokenizer.encode("axxb", {.add_special = true}), ElementsAre(1, 8, 0, 7));
  EXPECT_EQ(tokenizer.decode(Ids{8, 5, 2, 3}), "a é");
  EXPECT_EQ(tokenizer.decode(Ids{8, 2, 8}), "a\ufffd a");
}

TEST(TokenizerTest, BytesOfTokensMakeTheText) {
  const auto bytes = parse(byte_level());
  EXPECT_EQ(bytes.token_bytes(9), " a");
  EXPECT_EQ(bytes.token_bytes(4) + bytes.token_bytes(5), "é");
  EXPECT_EQ(bytes.token_bytes(11), "<think>");
  EXPECT_EQ(bytes.token_bytes(99), "");
  const auto sentences = parse(sentence());
  std::string text;
  for (const int32_t id : Ids{8, 5, 2, 3, 4}) text += sentences.token_bytes(id);
  EXPECT_EQ(text, " a é\n");
}

TEST(TokenizerTest, ConfigNamesTokens) {
  const auto tokenizer =
      parse(sentence(),
            R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": false})");
  EXPECT_TRUE(tokenizer.ends().empty());  // </s> is no token
  // The post-processor says what is added, as in transformers.
  EXPECT_THAT(tokenizer.prefix(), ElementsAre(1));
}

TEST(DecodeStreamTest, HoldsBackHalfCharacters) {
  const auto bytes = parse(byte_level());
  DecodeStream stream(bytes);
  EXPECT_EQ(stream.push(0), "a");
  EXPECT_EQ(stream.push(4), "");
  EXPECT_EQ(stream.push(5), "é");
  EXPECT_EQ(stream.push(4), "");
  EXPECT_EQ(stream.push(1), "\ufffdb");
  EXPECT_EQ(stream.push(4), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.push(5), "\ufffd");  // as new
}

TEST(DecodeStreamTest, StripsTheBeginningAloneAndWaitsForRunsOfBytes) {
  const auto tokenizer = parse(sentence());
  DecodeStream stream(tokenizer);
  EXPECT_EQ(stream.push(8), "a");
  EXPECT_EQ(stream.push(8), " a");
  EXPECT_EQ(stream.push(2), "");
  EXPECT_EQ(stream.push(3), "");
  EXPECT_EQ(stream.push(8), "é a");
  EXPECT_EQ(stream.push(2), "");
  EXPECT_EQ(stream.push(3), "");
  EXPECT_EQ(stream.finish(), "é");
}

TEST(ContinuationTest, IsWhatFollowsThePrompt) {
  const auto tokenizer = parse(sentence());
  Continuation behind(tokenizer, Ids{1, 8});
  EXPECT_EQ(behind.push(8), " a");
  Continuation first(tokenizer, Ids{1});
  EXPECT_EQ(first.push(8), "a");
  // Special tokens are omitted, except those that are to be shown.
  Continuation hidden(tokenizer, Ids{1, 8}), shown(tokenizer, Ids{1, 8}, {0});
  EXPECT_EQ(hidden.push(0), "");
  EXPECT_EQ(shown.push(0), "<unk>");
  // The prompt's line break was held back, but is not part of the continuation.
  Continuation line(tokenizer, Ids{1, 8, 4});
  EXPECT_EQ(line.push(6), "a");
  EXPECT_EQ(line.finish(), "");
}

TEST(TokenizerTest, RefusesByNameWhatIsNotThere) {
  json document = byte_level();
  document["normalizer"] = {{"type", "NFKC"}};
  EXPECT_THAT(error_of(document), HasSubstr("DIR/tokenizer.json: normalizer: \"NFKC\""));
  document = byte_level();
  document["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  EXPECT_THAT(error_of(document), HasSubstr("pre_tokenizer: \"BertPreTokenizer\""));
  document = byte_level();
  document["model"] = {{"type", "Unigram"}, {"vocab", json::array({json::array({"a", 0.5})})}};
  EXPECT_THAT(error_of(document), HasSubstr("model: \"Unigram\""));
  document = byte_level();
  document["model"]["dropout"] = 0.1;
  EXPECT_THAT(error_of(document), HasSubstr("model: dropout = 0.1"));
}

TEST(TokenizerTest, RefusesContradictions) {
  const auto with = [](const char* path, const json& value) {
    json document = byte_level();
    document[json::json_pointer(path)] = value;
    return error_of(document);
  };
  EXPECT_THAT(with("/model/vocab/a", 1), HasSubstr("id 1 belongs to two pieces"));
  EXPECT_THAT(with("/model/vocab/a", 1ll << 31), HasSubstr("has id 2147483648"));
  EXPECT_THAT(with("/model/vocab/<0x-1>", 12), HasSubstr("is not a byte"));
  EXPECT_THAT(with("/model/merges", json::array({"a d"})),
              HasSubstr("\"d\" is not in the vocabulary"));
  EXPECT_THAT(with("/model/merges", json::array({json::array({"a", ""})})),
              HasSubstr("a piece of the merge is empty"));
  EXPECT_THAT(with("/added_tokens/0/id", 17), HasSubstr("allowed: 10"));
  EXPECT_THAT(with("/added_tokens/1/content", "<|end|>"), HasSubstr("each token only once"));
}

TEST(TokenizerTest, HostilePatternsEndWithAnError) {
  json document = byte_level();
  document["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"Regex", "(a+)+$"}}},
                               {"behavior", "Isolated"},
                               {"invert", false}};
  const auto tokenizer = parse(document);
  EXPECT_EQ(tokenizer.encode("aaaaab").size(), 6u - 1);
  EXPECT_THROW(tokenizer.encode(std::string(60, 'a') + "b"), InputError);
}

TEST(TokenizerTest, ChainsAreLimited) {
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i) {
    deep = {{"type", "Sequence"}, {"normalizers", json::array({deep})}};
  }
  json document = byte_level();
  document["normalizer"] = deep;
  EXPECT_THAT(error_of(document), HasSubstr("nested too deep; allowed: 64 levels"));
  const json twice = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(600, 'a')}};
  document["normalizer"] = {{"type", "Sequence"},
                            {"normalizers", json::array({twice, twice, twice})}};
  EXPECT_THROW(parse(document).encode("aaaa"), InputError);
}

}  // namespace
}  // namespace fasa::text
