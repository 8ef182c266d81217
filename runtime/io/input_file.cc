#include "runtime/io/input_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

namespace fasa {

std::optional<std::string> read_file(const std::string& path) {
  // A folder opens, and throws when it is read.
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return std::nullopt;
  return text;
}

}  // namespace fasa
