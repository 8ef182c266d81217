// How byte-level vocabularies split text into words, by the pre-tokenizer's name in a GGUF file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

struct GgufPreTokenizer {
  std::vector<std::string> patterns;  // applied in order, each to the pieces of the one before
  bool ignore_merges = false;         // a word that is a token is not split
  bool composes = false;              // text is normalized to NFC
  bool adds_beginning = false;        // default if the file has no key for it
  bool has_beginning = true;          // false: none is added, whatever the file says
  bool byte_level = true;             // false: tokens are plain UTF-8, with U+2581 for blanks

  // The parts of a tokenizer.json.
  nlohmann::json normalizer() const;
  nlohmann::json pre_tokenizer() const;
};

// The pre-tokenizer of files that name none.
inline constexpr std::string_view kUnnamedPreTokenizer = "default";

// Null for an unknown name.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);
// All names, separated by commas.
std::string gguf_pre_tokenizer_names();

}  // namespace fasa
