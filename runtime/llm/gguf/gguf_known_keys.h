// Metadata keys of an architecture that no part of its config was made from.
#pragma once

#include <string>
#include <vector>

#include "runtime/llm/gguf/gguf_keys.h"

namespace fasa {

// Call these after the config was made. Throws InputError for a key that would change the model's
// results and is not supported, unless its value is the one without effect.
void require_known_keys(const GgufHeader& header, const GgufKeys& keys);
// Keys that neither that list nor the list of keys without effect has.
std::vector<std::string> unknown_keys(const GgufHeader& header, const GgufKeys& keys);

}  // namespace fasa
