// The traits of a kind of device that plans, settings and callers depend on. They are the same for
// an open device and for one that is only named (gpu_traits.h).
#pragma once

#include <cstdint>

#include "kernels/layout.h"
#include "offload/kernel_costs.h"

namespace fasa {

// Bytes of device scratch for a select over `count` sequences with up to `pages` pages of visible
// tokens, which ranks up to `ranked` tokens a head. Contents need not persist. The scratch of a
// larger select suffices for a smaller one.
using SelectScratchBytes = uint64_t (*)(const CacheLayout& layout, int count, int ranked,
                                        int pages);

// Rates of a device that the host must know in advance. Bytes per second, seconds.
struct DeviceRates {
  double memory_bandwidth = 300e9;
  double operations = 44e12;  // of matrix products, per second; 0: not known, takes no time
  KernelCosts kernels = {};
  double link_bandwidth = 25e9;  // host to device
  double link_latency = 10e-6;   // per transfer, in addition to the time of its bytes
};

struct DeviceTraits {
  // Device and host memory are one tier: rows stay where they are written.
  bool unified = false;
  // Work is complete when the call that enqueues it returns: host code may read its results.
  bool done_on_return = false;
  // Times are computed, not measured.
  bool virtual_clock = false;
  // The calls of a model's own work (ModelCalls) are supported.
  bool model_calls = false;
  // Timelines include the bytes that kernels move over the link, not only copies.
  bool times_kernel_bytes = true;
  // A low-bit set of all other tokens is attended to by whole pages (LowBitPages).
  bool low_bit_by_page = false;
  SelectScratchBytes select_scratch = nullptr;  // null: none
  // Bytes of device scratch for a projection. Only models ask, because the call may load a library.
  // Null: none.
  uint64_t (*project_scratch)() = nullptr;
  // Whether a select can score slices of `slice_dims` dimensions for `group` query heads per KV
  // head; null: always.
  bool (*scores)(int group, int slice_dims) = nullptr;
  DeviceRates rates = {};
};

// The processor, and the accelerator emulated on it.
inline constexpr DeviceTraits kHostTraits = {
    .unified = true, .done_on_return = true, .low_bit_by_page = true};
inline constexpr DeviceTraits kEmulatedTraits = {.virtual_clock = true, .low_bit_by_page = true};

}  // namespace fasa
