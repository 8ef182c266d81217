// Tokenizers of model families against ids and texts of Hugging Face's (golden/make_golden.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"
#include "tests/support/source_path.h"

namespace fasa::text {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

json read(const std::string& name) {
  std::ifstream file(source_path("tests/text/golden/" + name + ".json"));
  return json::parse(file);
}

// The golden file's tokenizer.json with its vocabulary.
Tokenizer parse(json golden, const std::string& name) {
  const json shared = read("vocabularies")[golden["vocabulary"].get<std::string>()];
  json& model = golden["document"]["model"];
  int id = golden["first_id"];
  for (const json& piece : shared["pieces"]) model["vocab"][piece.get<std::string>()] = id++;
  model["merges"] = shared["merges"];
  return Tokenizer::parse(golden["document"].dump(), "", name);
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  DecodeStream stream(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

class FamilyTokenizerTest : public ::testing::TestWithParam<const char*> {
 protected:
  const json golden_ = read(GetParam());
  const Tokenizer tokenizer_ = parse(golden_, GetParam());
};

TEST_P(FamilyTokenizerTest, TextsHaveTheirIds) {
  ASSERT_GT(golden_["texts"].size(), 30u);
  for (const json& one : golden_["texts"]) {
    const auto text = one[0].get<std::string>();
    const Ids ids = one[1];
    EXPECT_EQ(tokenizer_.encode(text), ids) << one[0];
    const auto decoded = one.size() > 2 ? one[2].get<std::string>() : text;
    EXPECT_EQ(tokenizer_.decode(ids), decoded) << one[0];
    EXPECT_EQ(streamed(tokenizer_, ids, false), decoded) << one[0];
  }
  EXPECT_EQ(tokenizer_.encode("a", {.add_special = true}), golden_["around"].get<Ids>());
}

TEST_P(FamilyTokenizerTest, IdsHaveTheirText) {
  for (const json& one : golden_["decoded"]) {
    const Ids ids = one[0];
    EXPECT_EQ(tokenizer_.decode(ids, false), one[1].get<std::string>()) << one[0];
    EXPECT_EQ(tokenizer_.decode(ids, true), one[2].get<std::string>()) << one[0];
    EXPECT_EQ(streamed(tokenizer_, ids, false), one[1].get<std::string>()) << one[0];
    EXPECT_EQ(streamed(tokenizer_, ids, true), one[2].get<std::string>()) << one[0];
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTokenizerTest,
                         ::testing::Values("qwen2", "qwen3_5", "gemma3", "ministral3", "gpt_oss",
                                           "glm4", "seed_oss", "cohere2", "starcoder2", "gpt2"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace fasa::text
