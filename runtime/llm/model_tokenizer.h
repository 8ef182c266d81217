// The tokenizer of a model, wherever a path says that it lies.
#pragma once

#include <memory>
#include <string>

#include "runtime/text/tokenizer.h"

namespace fasa {

// `path`: a Hugging Face folder (null where it has no tokenizer.json), or a GGUF file, whose
// metadata say it. Throws InputError.
std::unique_ptr<text::Tokenizer> open_tokenizer(const std::string& path);
// The same of a model that has to have one.
text::Tokenizer require_tokenizer(const std::string& path);

}  // namespace fasa
