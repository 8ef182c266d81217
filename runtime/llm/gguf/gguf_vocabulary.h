// The tokens of a GGUF file, with the types that loaders give them by their spelling.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/llm/gguf/gguf_header.h"

namespace fasa {

// Types of tokens, with the format's numbers.
enum class GgufTokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
};

// Holds views into the header's file.
class GgufVocabulary {
 public:
  // Throws InputError if the file has no tokens, too many, or types for only some.
  explicit GgufVocabulary(const GgufHeader& header);

  const std::vector<std::string_view>& texts() const { return texts_; }  // by id, none empty
  size_t size() const { return texts_.size(); }
  GgufTokenType type(size_t id) const { return types_[id]; }
  // The token that a key such as tokenizer.ggml.eos_token_id (`kind`: "eos") names; a SentencePiece
  // vocabulary has defaults. nullopt if there is none or the id is out of range.
  std::optional<size_t> named(std::string_view kind) const;
  // Tokens that end an answer: those named by keys, and those so spelt.
  std::vector<int64_t> ends() const;
  // Logs a warning for each key that names a token out of range.
  void warn_of_bad_ids() const;

 private:
  void override_types();
  std::optional<int64_t> id_of_key(std::string_view kind) const;

  const GgufHeader& header_;
  std::vector<std::string_view> texts_;
  std::deque<std::string> made_;  // names of tokens that are empty in the file
  std::vector<GgufTokenType> types_;
  std::unordered_map<std::string_view, size_t> known_;  // tokens with a meaning by their spelling
};

}  // namespace fasa
