// What a server says of its model, and its prompts' settings.
#pragma once

#include <string>

#include "bindings/http/service_options.h"
#include "runtime/base/geometry.h"

namespace fasa {

// The name that the user sees: of the link, not of the file behind it; of the repository in a cache
// of Hugging Face (models--OWNER--NAME/snapshots/HASH).
std::string model_name_of(const std::string& dir);

// What --template-kwargs gives: an object without the names of what requests bring. Throws
// UsageError.
serve::Json template_variables(const std::string& text);
// Whether a prompt must be cut where the next one may part from it (GenerationRequest).
bool marks_borders(const Geometry& geometry);

}  // namespace fasa
