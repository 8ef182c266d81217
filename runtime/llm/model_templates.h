// The chat templates of a model, wherever a path says that it lies.
#pragma once

#include <optional>
#include <string>

#include "runtime/text/chat_template.h"

namespace fasa {

// Chat templates of a Hugging Face folder or of a GGUF file's metadata; nothing if there are none.
// Throws InputError.
std::optional<text::ChatTemplates> open_templates(const std::string& path);
// As open_templates(), but throws InputError if there are none.
text::ChatTemplates require_templates(const std::string& path);

}  // namespace fasa
