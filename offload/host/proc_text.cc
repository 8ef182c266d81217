#include "offload/host/proc_text.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace fasa {

std::string proc_text(const std::string& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::optional<uint64_t> proc_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<uint64_t> proc_field(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + " ")) return proc_number(line.substr(name.size()));
  }
  return std::nullopt;
}

}  // namespace fasa
