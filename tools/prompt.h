// The prompt of a generation, however it was given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/llm/tokenizer.h"

namespace fasa {

struct PromptSource {
  std::optional<std::string> text;
  std::optional<std::string> file;       // taken byte for byte
  std::optional<std::string> ids_file;   // a JSON array, or numbers between blanks or commas
  std::optional<int64_t> random_tokens;  // so many ids that mean nothing, always the same
};

// Token ids below `vocab_size`. `tokenizer` may be null: only ids can be given then. Throws
// UsageError (not exactly one source, empty, no tokenizer) or InputError (unreadable file; an id,
// with its place).
std::vector<int32_t> read_prompt(const PromptSource& source, const Tokenizer* tokenizer,
                                 int vocab_size);

}  // namespace fasa
