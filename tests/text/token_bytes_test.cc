#include "runtime/text/token_bytes.h"

#include <gtest/gtest.h>

namespace fasa::text {
namespace {

// Byte-level: a, b, "ab" by a merge; a control token.
constexpr const char* kTokenizer = R"({
  "version": "1.0",
  "added_tokens": [{"id": 3, "content": "<end>", "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "post_processor": null,
  "decoder": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

TEST(TokenBytesTest, TokensThatAnotherTextHasToo) {
  const Tokenizer tokenizer = Tokenizer::parse(kTokenizer, "", "test");
  constexpr const char* kText = "ab<end>abb";
  const std::vector<int32_t> ids = {2, 3, 2, 1};
  const auto before = [&](size_t bytes) { return tokens_before(tokenizer, kText, ids, bytes); };
  EXPECT_EQ(before(2), 1);  // a control token begins there
  EXPECT_EQ(before(7), 1);  // the text behind might change the token that ends there
  EXPECT_EQ(before(8), 2);  // within a token
  EXPECT_EQ(before(9), 2);
  EXPECT_EQ(before(10), 0);  // nothing is behind
  EXPECT_EQ(tokens_before(tokenizer, "ab<end>bbb", ids, 2), 0) << "other ids";
}

}  // namespace
}  // namespace fasa::text
