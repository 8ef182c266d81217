// Splits under the names of tokenizer.ggml.pre against those of Hugging Face's tokenizers
// (tests/text/golden/make_pre_tokenizers.py).
#include "runtime/llm/gguf/gguf_pre_tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "runtime/base/utf8.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/pre_tokenizer.h"
#include "tests/support/source_path.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

Json golden() {
  std::ifstream file(source_path("tests/text/golden/pre_tokenizers.json"));
  return Json::parse(file);
}

// Lengths of a text's pieces, in characters.
std::vector<size_t> lengths_of(const GgufPreTokenizer& how, const std::string& text) {
  const text::PreTokenizerChain chain(how.pre_tokenizer(), "test");
  const text::Words words = chain.apply({text, {}});
  std::vector<size_t> lengths;
  size_t at = 0;  // in `text`; each of its bytes is a character of the byte alphabet
  for (const text::Span word : words.spans) {
    size_t count = 0;
    for (size_t byte = word.begin; byte < word.end; byte += utf8_bytes(words.text.text[byte])) {
      count += (static_cast<unsigned char>(text[at++]) & 0xc0) != 0x80 ? 1 : 0;
    }
    lengths.push_back(count);
  }
  EXPECT_EQ(at, text.size());
  return lengths;
}

TEST(GgufPreTokenizerTest, EveryNameSplitsAsItsModelsDo) {
  const Json all = golden();
  size_t names = 0;
  for (const Json& split : all["splits"]) {
    for (const Json& name : split[0]) {
      const GgufPreTokenizer* how = find_gguf_pre_tokenizer(name.get<std::string>());
      ASSERT_NE(how, nullptr) << name;
      ++names;
      for (size_t i = 0; i < all["texts"].size(); ++i) {
        EXPECT_EQ(lengths_of(*how, all["texts"][i]), split[1][i].get<std::vector<size_t>>())
            << name << " " << all["texts"][i];
      }
    }
  }
  EXPECT_GT(names, 60u);
}

TEST(GgufPreTokenizerTest, FlagsOfNames) {
  const auto flags = [](const char* name) {
    const GgufPreTokenizer& how = *find_gguf_pre_tokenizer(name);
    return std::set<std::string>{how.ignore_merges ? "ignores merges" : "",
                                 how.adds_beginning ? "adds BOS" : "",
                                 how.has_beginning ? "" : "has no BOS",
                                 how.normalizer().is_null() ? "" : how.normalizer()["type"]};
  };
  using Flags = std::set<std::string>;
  EXPECT_EQ(flags("llama-bpe"), (Flags{"", "ignores merges", "adds BOS"}));
  EXPECT_EQ(flags("dbrx"), Flags{""});
  EXPECT_EQ(flags("glm4"), (Flags{"", "ignores merges", "has no BOS"}));
  EXPECT_EQ(flags("tekken"), (Flags{"", "ignores merges", "adds BOS"}));
  EXPECT_EQ(flags("qwen35"), (Flags{"", "NFC"}));
  EXPECT_EQ(flags("deepseek-r1-qwen"), Flags{""});
  EXPECT_EQ(flags("gemma4"), (Flags{"", "adds BOS", "Replace"}));
}

TEST(GgufPreTokenizerTest, OtherNames) {
  for (const char* name : {"", "bert-bge", "kimi-k2", "llama bpe", "qwen"}) {
    EXPECT_EQ(find_gguf_pre_tokenizer(name), nullptr) << name;
  }
  EXPECT_NE(gguf_pre_tokenizer_names().find("qwen2, qwen35, refact"), std::string::npos);
}

}  // namespace
}  // namespace fasa
