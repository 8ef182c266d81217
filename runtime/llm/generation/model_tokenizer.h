// Opens a model's tokenizer: of a folder or a GGUF file.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/text/tokenizer.h"

namespace fasa {

// `path`: a Hugging Face folder (null if it has no tokenizer.json), or a GGUF file with the
// tokenizer in its metadata. `pre`: the pre-tokenizer's name instead of the one in the GGUF file;
// "": the file's. Throws InputError, and UsageError for a `pre` that cannot apply.
std::unique_ptr<text::Tokenizer> open_tokenizer(const std::string& path, std::string_view pre = "");
// Like open_tokenizer(), but throws InputError if there is none.
text::Tokenizer require_tokenizer(const std::string& path, std::string_view pre = "");

}  // namespace fasa
