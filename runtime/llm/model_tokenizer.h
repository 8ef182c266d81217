// Opens a model's tokenizer: of a folder or a GGUF file.
#pragma once

#include <memory>
#include <string>

#include "runtime/text/tokenizer.h"

namespace fasa {

// `path`: a Hugging Face folder (null if it has no tokenizer.json), or a GGUF file with the
// tokenizer in its metadata. Throws InputError.
std::unique_ptr<text::Tokenizer> open_tokenizer(const std::string& path);
// Like open_tokenizer(), but throws InputError if there is none.
text::Tokenizer require_tokenizer(const std::string& path);

}  // namespace fasa
