// Opens a model's chat templates: of a folder or a GGUF file.
#pragma once

#include <optional>
#include <string>

#include "runtime/text/chat_template.h"

namespace fasa {

// Chat templates of a Hugging Face folder or of a GGUF file's metadata; empty if there are none.
// Throws InputError.
std::optional<text::ChatTemplates> open_templates(const std::string& path);
// Like open_templates(), but throws InputError if there are none.
text::ChatTemplates require_templates(const std::string& path);

}  // namespace fasa
