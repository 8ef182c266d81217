// How many tokens a server has room for.
#pragma once

#include <cstdint>

#include "bindings/http/service_options.h"
#include "runtime/api/sequences/runtime.h"

namespace fasa {

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
