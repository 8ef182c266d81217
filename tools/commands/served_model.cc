#include "tools/commands/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/units.h"

namespace fasa {

std::string model_name_of(const std::string& dir) {
  const std::filesystem::path path = std::filesystem::absolute(dir).lexically_normal();
  const std::filesystem::path own = path.has_filename() ? path : path.parent_path();
  if (own.extension() == ".gguf") return own.stem().string();
  const std::string repository = own.parent_path().parent_path().filename().string();
  const bool cached =
      own.parent_path().filename() == "snapshots" && repository.starts_with("models--");
  return cached ? repository.substr(repository.rfind("--") + 2) : own.filename().string();
}

serve::Json template_variables(const std::string& text) {
  if (text.empty()) return serve::Json::object();
  serve::Json json = serve::Json::parse(text, nullptr, false);
  if (!json.is_object() || json.contains("messages") || json.contains("tools")) {
    throw UsageError(
        fmt::format("--template-kwargs {}: allowed: a JSON object without messages and tools, such "
                    "as {{\"enable_thinking\": false}}",
                    serve::json_text(serve::Json(text.substr(0, 80)))));
  }
  return json;
}

bool marks_borders(const Geometry& geometry) {
  const auto windowed = [](int window) { return window > 0; };
  return geometry.linear.layers > 0 ||
         std::any_of(geometry.windows.begin(), geometry.windows.end(), windowed);
}

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
