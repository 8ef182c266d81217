// Limits of the control group (container, service) that this process runs in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fasa {

// The narrowest limits of the group and of those around it; empty: none.
struct ControlGroup {
  std::optional<double> cpus;            // processors' time a second
  std::optional<uint64_t> memory_limit;  // bytes
  // Bytes of memory_limit that are not in use. The page cache counts as free: the kernel gives it
  // back before it refuses memory.
  std::optional<uint64_t> memory_left;

  // That of this process, read once: for its limits. What is left changes: read() it.
  static const ControlGroup& own();
  // Reads proc/self/cgroup and sys/fs/cgroup, version 1 and 2, below `root`, a path.
  static ControlGroup read(const std::string& root = "");

  bool any() const { return cpus || memory_limit; }
  // "2.5 processors, 4.00 GiB of memory"
  std::string describe() const;
};

}  // namespace fasa
