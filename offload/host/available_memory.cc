#include "offload/host/available_memory.h"

#include <algorithm>

#include "offload/host/control_group.h"
#include "offload/host/proc_text.h"

namespace fasa {
std::optional<uint64_t> available_in(const std::string& meminfo) {
  const auto kibibytes = proc_field(meminfo, "MemAvailable:");
  if (!kibibytes || *kibibytes > UINT64_MAX >> 10) return std::nullopt;
  return *kibibytes << 10;
}

std::optional<uint64_t> available_host_bytes() {
  const auto system = available_in(proc_text("/proc/meminfo"));
  const auto group = ControlGroup::read().memory_left;
  if (system && group) return std::min(*system, *group);
  return system ? system : group;
}

}  // namespace fasa
