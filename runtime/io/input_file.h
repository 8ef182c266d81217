// Small input files, read whole.
#pragma once

#include <optional>
#include <string>

namespace fasa {

// The file's bytes; nothing where it cannot be read (missing, no permission, a folder).
std::optional<std::string> read_file(const std::string& path);

}  // namespace fasa
