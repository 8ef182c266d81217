#include "offload/host/available_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

#include "offload/host/control_group.h"

namespace fasa {
namespace {

std::optional<uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<uint64_t> available_in(const std::string& meminfo) {
  constexpr std::string_view kField = "MemAvailable:";
  const size_t at = meminfo.find(kField);
  if (at == std::string::npos) return std::nullopt;
  const auto kibibytes = leading_number(std::string_view(meminfo).substr(at + kField.size()));
  if (!kibibytes || *kibibytes > UINT64_MAX >> 10) return std::nullopt;
  return *kibibytes << 10;
}

std::optional<uint64_t> available_host_bytes() {
  std::ifstream file("/proc/meminfo");
  std::ostringstream text;
  text << file.rdbuf();
  const auto system = available_in(text.str());
  const auto group = ControlGroup::read("/").memory_left;
  if (system && group) return std::min(*system, *group);
  return system ? system : group;
}

}  // namespace fasa
