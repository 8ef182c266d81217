// The bytes of a vocabulary's tokens, in the order in which their common beginnings lie together.
#pragma once

#include <cstdint>
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
    uint32_t common;  // bytes that the one before begins with, too
  };

  // `bytes`: of each id; "" for what stands for none.
  explicit TokenTable(std::vector<std::string> bytes);
  // Control tokens have no bytes, but for those of `shown`.
  TokenTable(const Tokenizer& tokenizer, std::span<const int32_t> shown);

  std::span<const Token> sorted() const { return sorted_; }
  std::string_view bytes(int32_t id) const;
  int32_t end_id() const { return static_cast<int32_t>(index_of_.size()); }  // above the largest

 private:
  std::vector<Token> sorted_;
  std::vector<int32_t> index_of_;  // of each id in sorted_, -1: none
};

}  // namespace fasa::text
