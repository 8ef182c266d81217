// GPUs by name, for plans and the emulated device: the properties that decide a decode step's time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

struct Gpu {
  std::string name;               // "RTX 4060 Ti 16GB"
  uint64_t memory_bytes = 0;      // visible to programs, before the driver's share
  double memory_bandwidth = 0;    // bytes per second, from the data sheet
  double tensor_flops = 0;        // bf16 (Turing: fp16), dense, f32 sums, per second
  double cycles = 0;              // multiprocessors * clock, per second
  int compute_capability = 80;    // x 10; 80 stands for all from 8.0 on
  int pcie_generation = 0;        // of the card; the slot may have less
  int pcie_lanes = 0;             //
  double link_bandwidth() const;  // bytes per second and direction, for large copies
};

std::span<const Gpu> gpus();

// Ignores case, blanks, dashes, "NVIDIA", "GeForce" and a missing "RTX"; the memory size may be
// omitted if there is only one ("RTX 4090", "4060ti-16gb"). Throws UsageError: with the nearest
// names for an unknown name, with the candidates for an ambiguous one.
const Gpu& find_gpu(std::string_view name);

}  // namespace fasa
