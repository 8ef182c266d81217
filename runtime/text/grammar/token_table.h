// The bytes of a vocabulary's tokens, sorted so that common prefixes are adjacent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace fasa::text {

// Immutable.
class TokenTable {
 public:
  struct Token {
    std::string bytes;
    int32_t id;
    uint32_t common;  // bytes shared with the previous entry
  };

  // `bytes`: one entry per id; "" for an unused id.
  explicit TokenTable(std::vector<std::string> bytes);
  // Control tokens have no bytes; the bytes of some tokens are given.
  TokenTable(const Tokenizer& tokenizer, const std::map<int32_t, std::string>& given);

  std::span<const Token> sorted() const { return sorted_; }
  std::string_view bytes(int32_t id) const;
  // One more than the largest id.
  int32_t end_id() const { return static_cast<int32_t>(index_of_.size()); }

 private:
  std::vector<Token> sorted_;
  std::vector<int32_t> index_of_;  // index in sorted_ per id, -1: none
};

}  // namespace fasa::text
