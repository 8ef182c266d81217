#include "runtime/config/renamed_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace fasa {
namespace {

constexpr RenamedKey kRenamedKeys[] = {
    {"near_tokens", "low_bit_tokens"},
    {"value_slice", "value_codes"},
};

std::string as_flag(std::string_view key) {
  std::string flag = "--" + std::string(key);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string as_variable(std::string_view key) {
  std::string variable = "FASA_" + std::string(key);
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return variable;
}

}  // namespace

std::span<const RenamedKey> renamed_keys() { return kRenamedKeys; }

std::string renamed_hint(std::string_view given) {
  const std::string_view key = given.substr(given.rfind('.') + 1);
  for (const auto& [before, now] : kRenamedKeys) {
    if (key == before) return fmt::format(" (renamed to {})", now);
    if (given == as_flag(before)) return fmt::format(" (renamed to {})", as_flag(now));
    if (given == as_variable(before)) return fmt::format(" (renamed to {})", as_variable(now));
  }
  return "";
}

}  // namespace fasa
