// The components of a tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/added_tokens.h"
#include "runtime/text/bpe.h"
#include "runtime/text/decoder.h"
#include "runtime/text/normalizer.h"
#include "runtime/text/post_processor.h"
#include "runtime/text/pre_tokenizer.h"

namespace fasa::text {

struct TokenizerParts {
  NormalizerChain normalizer;
  PreTokenizerChain pre_tokenizer;
  Bpe bpe;
  AddedTokens added;
  Surroundings around;
  DecoderChain decoder;
  std::vector<int32_t> ends;

  // The text used to decode an id; nullopt for an unused id.
  std::optional<std::string_view> spelling(int32_t id) const;
  std::optional<int32_t> find(std::string_view piece) const;
};

// Throws InputError; see Tokenizer::parse.
TokenizerParts read_parts(std::string_view json, std::string_view config, const std::string& name);

}  // namespace fasa::text
