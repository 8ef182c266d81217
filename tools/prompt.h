// The prompt of a generation, however it was given.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace fasa {

struct PromptSource {
  std::optional<std::string> text;
  std::optional<std::string> file;       // taken byte for byte
  std::optional<std::string> ids_file;   // a JSON array, or numbers between blanks or commas
  std::optional<int64_t> random_tokens;  // so many ids that mean nothing, always the same
};

// The tokenizer of a model's folder; null if there is none. An unreadable one is an error only if
// the prompt is text; token ids work without it, after a warning.
std::unique_ptr<text::Tokenizer> load_tokenizer(const std::string& model_dir,
                                                const PromptSource& source);

// The text of a source that is one. Throws InputError for a file that can't be read.
std::string read_prompt_text(const PromptSource& source);
// Those of a file, below `vocab_size`.
std::vector<int32_t> read_ids(const std::string& path, int vocab_size);

// Token ids below `vocab_size`. `tokenizer` may be null: only ids can be given then. Throws
// UsageError (not exactly one source, empty, no tokenizer) or InputError (unreadable file; an id,
// with its place).
std::vector<int32_t> read_prompt(const PromptSource& source, const text::Tokenizer* tokenizer,
                                 int vocab_size);

}  // namespace fasa
