// GPUs by name, for plans and for the emulated device: what decides the time of a decode step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

struct Gpu {
  std::string name;               // "RTX 4060 Ti 16GB"
  uint64_t memory_bytes = 0;      // that programs can have, before the driver's own
  double memory_bandwidth = 0;    // bytes per second, of the data sheet
  double tensor_flops = 0;        // bf16 (Turing: fp16), dense, f32 sums, per second
  int pcie_generation = 0;        // of the card; the board's slot may offer less
  int pcie_lanes = 0;             //
  double launch_seconds = 4e-6;   // of a kernel behind another in its stream
  double link_bandwidth() const;  // bytes per second and direction that large copies reach
};

std::span<const Gpu> gpus();

// Ignores capitals, blanks, dashes, "NVIDIA", "GeForce" and a missing "RTX"; the memory may be left
// out where there is one size only ("RTX 4090", "4060ti-16gb"). Throws UsageError with the nearest
// names for an unknown one, with the candidates for one that fits several.
const Gpu& find_gpu(std::string_view name);

}  // namespace fasa
