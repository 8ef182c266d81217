// What a device is opened with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fasa {

// Where host arenas go: the NUMA node nearest to the device, all nodes by turns, or one node.
struct NumaPolicy {
  enum class Kind : uint8_t { kAuto, kInterleave, kNode } kind = Kind::kAuto;
  int node = 0;
};

struct DeviceOptions {
  std::string name = "auto";  // auto, cpu, emulated, cuda:N
  int threads = 0;            // of the CPU's kernels; 0 = all cores of the process
  NumaPolicy numa;
  std::optional<uint64_t> device_memory;  // bytes; none = no limit
  std::optional<uint64_t> host_memory;
  std::optional<uint64_t> pinned_memory;
  double link_bandwidth = 25e9;     // bytes per second and direction (emulated)
  double link_latency = 10e-6;      // seconds per transfer (emulated)
  double memory_bandwidth = 300e9;  // of the emulated device's own memory
  double launch_seconds = 4e-6;     // per kernel on the emulated device
  // For benchmarks only: a host allocation larger than this repeats one stretch of this many bytes
  // of physical memory, so that a geometry's host rows can be addressed, and transfers to and from
  // them measured, on a machine that cannot hold them. What is written there overwrites itself.
  std::optional<uint64_t> host_alias_bytes;
};

}  // namespace fasa
