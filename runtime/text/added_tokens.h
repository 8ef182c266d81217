// Tokens outside a model's vocabulary: matched by spelling before the text is split into words.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/text/normalizer.h"
#include "runtime/text/regex.h"
#include "runtime/text/vocabulary.h"

namespace fasa::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string spelling;      // searched text; normalized if `normalized`
  bool single_word = false;  // no word character may be adjacent
  bool lstrip = false;       // takes preceding white space
  bool rstrip = false;       // takes following white space
  bool normalized = true;    // searched in the normalized text, else in the raw one
  bool special = false;      // skipped when decoding skips special tokens
  // In user text: runs of white space count as vocabulary, all other added tokens as controls.
  bool is_control = true;
  // Input of decoding: the spelling in a text.
  std::string_view decoded() const { return normalized ? spelling : content; }
};

// One flag per byte of a prompt: 1 if a user wrote it; empty if none.
using UserBytes = std::vector<uint8_t>;

// A part of a text: a token, or the text between two tokens.
struct TokenSpan {
  Span span;
  const AddedToken* token = nullptr;
};

// Finds tokens in texts, the longest at each position. Thread-safe.
class TokenFinder {
 public:
  // `tokens` must outlive it. Throws InputError if two have the same spelling.
  TokenFinder(std::vector<const AddedToken*> tokens, const std::string& place);

  // Covers the whole text, in order. `text.origins` are indexes into `user`; needed unless that is
  // empty.
  std::vector<TokenSpan> find(const MappedText& text, const UserBytes& user) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;  // byte, index in nodes_
    const AddedToken* token = nullptr;
  };
  void add(const AddedToken* token, const std::string& place);
  const AddedToken* longest_at(const MappedText& text, size_t at, const UserBytes& user) const;
  bool is_word_at(std::string_view text, size_t at) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};  // whether a token begins with this byte
  Regex word_character_;
};

class AddedTokens {
 public:
  // `part`: the "added_tokens" of a tokenizer.json. Throws InputError for a token that is
  // inconsistent in itself, with other tokens or with the vocabulary.
  AddedTokens(const nlohmann::json& part, const Vocabulary& vocabulary,
              const NormalizerChain& normalizer, const std::string& place);

  const TokenFinder& in_raw_text() const { return raw_; }
  const TokenFinder& in_normalized_text() const { return normalized_; }
  // Null if no added token has the id.
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  bool is_special(std::string_view spelling) const {
    return special_.contains(std::string(spelling));
  }
  int32_t end_id() const { return end_id_; }  // one more than the largest id

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, const AddedToken*> by_id_;
  std::unordered_map<std::string_view, const AddedToken*> by_content_;
  std::unordered_set<std::string> special_;
  int32_t end_id_ = 0;
  TokenFinder raw_, normalized_;
};

}  // namespace fasa::text
