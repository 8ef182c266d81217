// Options for opening a device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "offload/kernel_costs.h"

namespace fasa {

// Where host arenas are placed: on the NUMA node nearest to the device, interleaved over all nodes,
// or on one node.
struct NumaPolicy {
  enum class Kind : uint8_t { kAuto, kInterleave, kNode } kind = Kind::kAuto;
  int node = 0;
};

struct DeviceOptions {
  std::string name = "auto";  // auto, cpu, emulated, cuda:N
  int threads = 0;            // threads of the CPU kernels; 0: all cores of the process
  NumaPolicy numa;
  std::optional<uint64_t> device_memory;  // bytes; empty: no limit
  std::optional<uint64_t> host_memory;
  std::optional<uint64_t> pinned_memory;
  bool kernel_times = true;         // a GPU measures what kernels cost when it is opened
  double link_bandwidth = 25e9;     // bytes per second and direction (emulated)
  double link_latency = 10e-6;      // seconds per transfer (emulated)
  double memory_bandwidth = 300e9;  // bytes per second, emulated device memory
  double operations = 44e12;        // of matrix products per second, emulated; 0: take no time
  KernelCosts kernels;              // emulated
  // For benchmarks only: larger host allocations map this many bytes of physical memory repeatedly.
  // So host rows of any size can be addressed, and their transfers measured, on a machine that
  // cannot hold them. Writes overwrite each other.
  std::optional<uint64_t> host_alias_bytes;
};

}  // namespace fasa
