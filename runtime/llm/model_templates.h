// The chat templates of a model, wherever a path says that it lies.
#pragma once

#include <optional>
#include <string>

#include "runtime/text/chat_template.h"

namespace fasa {

// `path`: a Hugging Face folder, or a GGUF file, whose metadata say them; nothing where it has none.
// Throws InputError.
std::optional<text::ChatTemplates> open_templates(const std::string& path);
// The same of a model that has to have one.
text::ChatTemplates require_templates(const std::string& path);

}  // namespace fasa
