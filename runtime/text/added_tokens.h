// Tokens that stand beside a model's vocabulary: found in the text as they are spelt, before it is
// split into words.
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
  std::string spelling;      // what is looked for: normalized where it says so
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = true;    // looked for in the normalized text, else in the raw one
  bool special = false;      // left out by decoding that skips special tokens
  // In a text that a user wrote: runs of white space are vocabulary, all else controls.
  bool is_control = true;
  // What decoding begins with: the spelling that a text would have had.
  std::string_view decoded() const { return normalized ? spelling : content; }
};

// Which bytes of a prompt a user wrote: 1, else 0; empty where none are.
using UserBytes = std::vector<uint8_t>;

// A stretch of a text: a token, or what is between two.
struct TokenSpan {
  Span span;
  const AddedToken* token = nullptr;
};

// Finds tokens in texts: at each place the longest. Read by any number of threads.
class TokenFinder {
 public:
  // `tokens` outlive it. Throws InputError where two are spelt the same.
  TokenFinder(std::vector<const AddedToken*> tokens, const std::string& place);

  // All of the text, in order. `text.origins` are places in `user`; needed where that is not empty.
  std::vector<TokenSpan> find(const MappedText& text, const UserBytes& user) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;  // byte, place in nodes_
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
  // `part`: the "added_tokens" of a tokenizer.json. Throws InputError where one contradicts itself,
  // the others or the vocabulary.
  AddedTokens(const nlohmann::json& part, const Vocabulary& vocabulary,
              const NormalizerChain& normalizer, const std::string& place);

  const TokenFinder& in_raw_text() const { return raw_; }
  const TokenFinder& in_normalized_text() const { return normalized_; }
  // Null where no added token has the id.
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  bool is_special(std::string_view spelling) const {
    return special_.contains(std::string(spelling));
  }
  int32_t end_id() const { return end_id_; }  // above the largest
  bool has_normalized_control() const;

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, const AddedToken*> by_id_;
  std::unordered_map<std::string_view, const AddedToken*> by_content_;
  std::unordered_set<std::string> special_;
  int32_t end_id_ = 0;
  TokenFinder raw_, normalized_;
};

}  // namespace fasa::text
