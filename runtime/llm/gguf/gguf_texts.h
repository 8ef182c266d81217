// Converts a GGUF file's metadata to the JSON files of a Hugging Face folder, so that one reader
// serves both formats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/llm/gguf/gguf_header.h"

namespace fasa {

// Returns a config.json. Throws InputError for an unsupported architecture or feature.
std::string gguf_config_json(const GgufHeader& header);
// Keys that nothing here knows; they may mean that the model is computed otherwise.
std::vector<std::string> gguf_unknown_keys(const GgufHeader& header);

// Whether the file has a vocabulary.
bool has_gguf_tokenizer(const GgufHeader& header);
// Returns a tokenizer.json. Throws InputError for an unknown kind of vocabulary or pre-tokenizer.
// `pre`: the pre-tokenizer's name instead of the file's; "": the file's. Throws UsageError if it is
// unknown or the vocabulary has none.
std::string gguf_tokenizer_json(const GgufHeader& header, std::string_view pre = "");
// Returns a tokenizer_config.json, with chat templates if the file has any.
std::string gguf_tokenizer_config_json(const GgufHeader& header);

// Ids of the tokens that end an answer; empty if the file has no vocabulary.
std::vector<int64_t> gguf_ends(const GgufHeader& header);

// Returns a generation_config.json.
std::string gguf_generation_json(const GgufHeader& header);

}  // namespace fasa
