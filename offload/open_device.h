// Opens devices by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "offload/device.h"

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

struct CudaPlatform;

// Throws UsageError for an unknown name (listing what there is) and for impossible options,
// DeviceError for a GPU that can't be used, with what to do. `auto` takes cuda:0 where that can be
// opened, else cpu, with a notice why in builds that have CUDA.
std::unique_ptr<Device> open_device(const DeviceOptions& options);
// With another CUDA runtime than this build's.
std::unique_ptr<Device> open_device(const DeviceOptions& options, const CudaPlatform& platform);

}  // namespace fasa
