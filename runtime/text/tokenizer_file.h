// Reads tokenizer.json: small parts as JSON, the vocabulary and its merges straight into place.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/text/bpe.h"
#include "runtime/text/vocabulary.h"

namespace fasa::text {

inline constexpr size_t kMaxFileBytes = 128 << 20;

struct TokenizerFile {
  // Everything but model.vocab and model.merges.
  nlohmann::json document;
  Vocabulary vocabulary;  // not sealed
  MergeList merges;
  bool has_vocabulary = false, has_merges = false;
  bool has_scored_pieces = false;  // the vocabulary is a list, as a Unigram's: left out
};

// `place` names the file. Throws InputError: not JSON, deeper or larger than allowed, a vocabulary
// or merges of another form.
TokenizerFile read_tokenizer_file(std::string_view json, const std::string& place);

}  // namespace fasa::text
