// The bytes of a vocabulary's tokens, by id and as a tree.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/grammar/token_trie.h"
#include "runtime/text/tokenizer.h"

namespace fasa::text {

// Immutable.
class TokenTable {
 public:
  // Few tokens have more bytes; the longest have over a hundred.
  static constexpr uint32_t kShortBytes = 32;

  // `bytes`: one entry per id; "" for an unused id.
  explicit TokenTable(std::vector<std::string> bytes);
  // Control tokens have no bytes; the bytes of some tokens are given.
  TokenTable(const Tokenizer& tokenizer, const std::map<int32_t, std::string>& given);

  const TokenTrie& trie() const { return trie_; }
  const TokenTrie& long_tokens() const { return long_tokens_; }  // of more than kShortBytes
  std::string_view bytes(int32_t id) const;                      // "" where there is none
  // One more than the largest id.
  int32_t end_id() const { return static_cast<int32_t>(bytes_.size()); }

 private:
  std::vector<std::string> bytes_;
  TokenTrie trie_;
  TokenTrie long_tokens_;
};

}  // namespace fasa::text
