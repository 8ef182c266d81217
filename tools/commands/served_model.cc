#include "tools/commands/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"

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

}  // namespace fasa
