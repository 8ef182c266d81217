// Files that come with the program: bundled models, texts and traces.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace fasa {

// `name`: a path below `models`, as "texts/ruth.txt". Looks in `models` and `share/fasa/models`
// beside this library or program, then in each folder above it. None if there is no such file or
// folder.
std::optional<std::filesystem::path> shipped_file(std::string_view name);

}  // namespace fasa
