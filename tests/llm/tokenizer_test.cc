#include "runtime/llm/tokenizer.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/source_path.h"

namespace fasa {
namespace {

TEST(TokenizerTest, BundledModelMapsEachByteToItself) {
  const auto tokenizer = Tokenizer::load(source_path("models/needle-3m"));
  ASSERT_NE(tokenizer, nullptr);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const auto ids = tokenizer->encode(all);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[static_cast<size_t>(byte)], byte);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_EQ(tokenizer->decode(-1), "");
  EXPECT_EQ(tokenizer->decode(256), "");
}

TEST(TokenizerTest, OtherKindsAreNone) {
  const auto parse = [](const char* json) { return Tokenizer::parse(json, "tokenizer.json"); };
  EXPECT_EQ(parse("{}"), nullptr);
  EXPECT_EQ(parse("[]"), nullptr);
  EXPECT_EQ(parse(R"({"model":{"type":"Unigram","vocab":[]}})"), nullptr);
  EXPECT_EQ(parse(R"({"model":{"type":7,"vocab":{}}})"), nullptr);
  EXPECT_EQ(parse(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})"), nullptr);
  EXPECT_EQ(parse(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a a"]}})"), nullptr);
  EXPECT_THROW(parse("{"), InputError);
  EXPECT_EQ(Tokenizer::load("/nowhere"), nullptr);
}

}  // namespace
}  // namespace fasa
