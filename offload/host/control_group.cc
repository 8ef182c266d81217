#include "offload/host/control_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "offload/host/proc_text.h"
#include "runtime/base/units.h"

namespace fasa {
namespace {

// Version 1 writes "no limit" as a number about as large as this.
constexpr uint64_t kUnlimited = uint64_t{1} << 60;

std::optional<uint64_t> number_of(const std::string& file) { return proc_number(proc_text(file)); }

template <typename T>
void narrow(std::optional<T>& limit, std::optional<T> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

void narrow_memory(ControlGroup& group, std::optional<uint64_t> limit, std::optional<uint64_t> used,
                   uint64_t cached) {
  if (!limit || *limit >= kUnlimited) return;
  const uint64_t held = used.value_or(0) - std::min(cached, used.value_or(0));
  narrow(group.memory_limit, limit);
  narrow(group.memory_left, std::optional(*limit - std::min(held, *limit)));
}

// Files that were mapped or read, without those that live in memory alone.
uint64_t page_cache(const std::string& stat, const char* files, const char* shared) {
  const uint64_t all = proc_field(stat, files).value_or(0);
  return all - std::min(all, proc_field(stat, shared).value_or(0));
}

void read_memory_2(const std::string& folder, ControlGroup& group) {
  narrow_memory(group, number_of(folder + "/memory.max"), number_of(folder + "/memory.current"),
                page_cache(proc_text(folder + "/memory.stat"), "file", "shmem"));
}

void read_memory_1(const std::string& folder, ControlGroup& group) {
  narrow_memory(group, number_of(folder + "/memory.limit_in_bytes"),
                number_of(folder + "/memory.usage_in_bytes"),
                page_cache(proc_text(folder + "/memory.stat"), "total_cache", "total_shmem"));
}

void narrow_cpus(ControlGroup& group, std::optional<uint64_t> quota,
                 std::optional<uint64_t> period) {
  if (!quota || period.value_or(0) == 0) return;
  narrow(group.cpus, std::optional(static_cast<double>(*quota) / static_cast<double>(*period)));
}

void read_cpu_2(const std::string& folder, ControlGroup& group) {
  const std::string text = proc_text(folder + "/cpu.max");  // "QUOTA PERIOD", "max PERIOD"
  narrow_cpus(group, proc_number(text),
              proc_number(std::string_view(text).substr(std::min(text.find(' '), text.size()))));
}

void read_cpu_1(const std::string& folder, ControlGroup& group) {
  narrow_cpus(group, number_of(folder + "/cpu.cfs_quota_us"),  // -1: none
              number_of(folder + "/cpu.cfs_period_us"));
}

// Calls read(folder) for a group and those around it. Inside of a container the group's path may
// name folders that only the host sees; those are skipped.
template <typename Read>
void for_each_level(const std::string& mount, std::string group, const Read& read) {
  for (;; group.erase(group.rfind('/'))) {
    while (group.ends_with('/')) group.pop_back();
    read(mount + group);
    if (group.find('/') == std::string::npos) return;
  }
}

bool names(std::string_view controllers, std::string_view wanted) {
  const std::string all = fmt::format(",{},", controllers);
  return all.find(fmt::format(",{},", wanted)) != std::string::npos;
}

}  // namespace

// Paths are texts: std::filesystem::path of g++ 12 frees twice where memory ends in operator/.
ControlGroup ControlGroup::read(const std::string& root) {
  ControlGroup group;
  const std::string mount = root + "/sys/fs/cgroup";
  std::istringstream lines(proc_text(root + "/proc/self/cgroup"));  // "ID:CONTROLLERS:PATH"
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string at = line.substr(second + 1);
    if (controllers.empty()) {
      for_each_level(mount, at, [&](const std::string& folder) {
        read_memory_2(folder, group);
        read_cpu_2(folder, group);
      });
    }
    if (names(controllers, "memory")) {
      for_each_level(mount + "/memory", at,
                     [&](const std::string& folder) { read_memory_1(folder, group); });
    }
    if (names(controllers, "cpu")) {
      for (const std::string& folder : {mount + "/cpu", mount + "/" + controllers}) {
        for_each_level(folder, at, [&](const std::string& one) { read_cpu_1(one, group); });
      }
    }
  }
  return group;
}

const ControlGroup& ControlGroup::own() {
  static const ControlGroup group = read("");
  return group;
}

std::string ControlGroup::describe() const {
  std::string text;
  if (cpus) text = fmt::format("{:.3g} processors", *cpus);
  if (memory_limit) {
    text += fmt::format("{}{} of memory", text.empty() ? "" : ", ", format_bytes(*memory_limit));
  }
  return text;
}

}  // namespace fasa
