#include "bindings/http/request_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <random>

namespace fasa::serve {

std::string request_id(std::string_view given) {
  constexpr size_t kMaxLength = 64;
  const bool plain = std::all_of(given.begin(), given.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == ':' || c == '-';
  });
  if (!given.empty() && given.size() <= kMaxLength && plain) return std::string(given);
  thread_local std::random_device device;
  return fmt::format("req_{:08x}{:08x}", device(), device());
}

}  // namespace fasa::serve
