// The prompt of a generation, from any of its sources.
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
  std::optional<std::string> file;       // read byte for byte
  std::optional<std::string> ids_file;   // a JSON array, or numbers separated by blanks or commas
  std::optional<int64_t> random_tokens;  // so many random ids, always the same
  std::string pre = {};                  // pre-tokenizer for texts; "": the model's
};

// The tokenizer of a model's folder; null if there is none. An unreadable one is an error only if
// the prompt is text; token ids work without it, after a warning.
std::unique_ptr<text::Tokenizer> load_tokenizer(const std::string& model_dir,
                                                const PromptSource& source);

// The text of a text source. Throws InputError if the file cannot be read.
std::string read_prompt_text(const PromptSource& source);
// Reads token ids from a file; each must be below `vocab_size`.
std::vector<int32_t> read_ids(const std::string& path, int vocab_size);

// Token ids below `vocab_size`. If `tokenizer` is null, the source must hold ids. Throws UsageError
// (not exactly one source, empty, no tokenizer) or InputError (unreadable file; an invalid id, with
// its position).
std::vector<int32_t> read_prompt(const PromptSource& source, const text::Tokenizer* tokenizer,
                                 int vocab_size);

}  // namespace fasa
