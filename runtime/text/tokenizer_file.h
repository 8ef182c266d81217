// Reads tokenizer.json: small parts as JSON, vocabulary and merges directly into their tables.
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
  bool has_scored_pieces = false;  // the vocabulary is a list, as a Unigram's, and was skipped
};

// `place`: the file's name, for errors. Throws InputError if it is not JSON, is deeper or larger
// than allowed, or has a vocabulary or merges in another form.
TokenizerFile read_tokenizer_file(std::string_view json, const std::string& place);

}  // namespace fasa::text
