// What a GGUF file's metadata says, as the JSON files of a Hugging Face folder say it: so that one
// reader of each serves both.
#pragma once

#include <string>

#include "runtime/llm/gguf/gguf_header.h"

namespace fasa {

// config.json. Throws InputError for an architecture, or a part of one, that is not read.
std::string gguf_config_json(const GgufHeader& header);

// Whether the file has a vocabulary.
bool has_gguf_tokenizer(const GgufHeader& header);
// tokenizer.json. Throws InputError for a kind of vocabulary or a pre-tokenizer that is not known.
std::string gguf_tokenizer_json(const GgufHeader& header);
// tokenizer_config.json, with the chat templates where there are any.
std::string gguf_tokenizer_config_json(const GgufHeader& header);

// generation_config.json.
std::string gguf_generation_json(const GgufHeader& header);

}  // namespace fasa
