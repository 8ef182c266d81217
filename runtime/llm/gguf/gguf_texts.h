// What a GGUF file's metadata says, as the JSON files of a Hugging Face folder say it: so that one
// reader of each serves both.
#pragma once

#include <string>

#include "runtime/llm/gguf/gguf_header.h"

namespace fasa {

// config.json. Throws InputError for an architecture, or a part of one, that is not read.
std::string gguf_config_json(const GgufHeader& header);

struct GgufTokenizerTexts {
  std::string tokenizer;  // tokenizer.json
  std::string config;     // tokenizer_config.json, with the chat template where there is one
};
// Throws InputError for a kind of vocabulary or a pre-tokenizer that is not known.
GgufTokenizerTexts gguf_tokenizer_texts(const GgufHeader& header);

}  // namespace fasa
