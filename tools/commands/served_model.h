// What a server says of its model, its prompts' settings, and how many tokens it has room for.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/http/service_options.h"
#include "runtime/api/sequences/runtime.h"
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

// The memory of a conversation that fills the context, per token.
serve::TokenMemory token_memory(const Runtime& runtime, int64_t tokens, int step_tokens);

// What fits beside the model: tokens of one conversation; hot rows take what is left.
struct Room {
  int64_t tokens = 0;
  uint64_t free = UINT64_MAX;  // bytes of the device; UINT64_MAX: no limit
};

Room room_of(const Runtime& runtime, const Device& device, int64_t most, int step_tokens);
void print_room(const Room& room, const serve::TokenMemory& token, int64_t context);

}  // namespace fasa
