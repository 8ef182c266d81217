#include "tools/commands/served_room.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/units.h"

namespace fasa {

serve::TokenMemory token_memory(const Runtime& runtime, int64_t tokens, int step_tokens) {
  const KvMemory memory = runtime.estimate_memory(tokens, step_tokens);
  const auto count = static_cast<uint64_t>(tokens);
  return {.device = (memory.device_slices + memory.device_rows + memory.device_states) / count,
          .host = memory.host_needed() / count};
}

Room room_of(const Runtime& runtime, const Device& device, int64_t most, int step_tokens) {
  const auto left = [&](MemorySpace space) {
    const MemoryUse use = device.memory(space);
    return use.limit_bytes == UINT64_MAX
               ? UINT64_MAX
               : use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
  };
  Room room{.tokens = most, .free = left(MemorySpace::kDevice)};
  const uint64_t host = left(MemorySpace::kHost);
  const auto fits = [&](int64_t tokens) {
    const auto step = static_cast<int>(std::min<int64_t>(step_tokens, tokens));
    return runtime.min_device_bytes(tokens, step) <= room.free &&
           runtime.estimate_memory(tokens, step).host_needed() <= host;
  };
  if (fits(most)) return room;
  int64_t bad = most;
  for (room.tokens = 0; bad - room.tokens > 1;) {
    const int64_t middle = room.tokens + (bad - room.tokens) / 2;
    (fits(middle) ? room.tokens : bad) = middle;
  }
  return room;
}

void print_room(const Room& room, const serve::TokenMemory& token, int64_t context) {
  if (room.free == UINT64_MAX || token.device == 0) return;
  const auto tokens = static_cast<int64_t>(room.free / token.device);
  fmt::print(stderr, "fasa serve: room for about {} tokens at once in {} of device memory", tokens,
             format_bytes(room.free));
  if (room.tokens == context) {
    fmt::print(stderr, ": {} conversations of {} tokens\n", std::max<int64_t>(1, tokens / context),
               context);
    return;
  }
  fmt::print(stderr,
             "\nfasa serve: warning: a conversation of {} tokens does not fit; the longest has {} "
             "(--fit makes room)\n",
             context, room.tokens);
}

}  // namespace fasa
