// The traits of a kind of device that plans, settings and callers depend on. They are the same for
// an open device and for one that is only named (gpu_traits.h).
#pragma once

#include <algorithm>
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

  // Seconds of device bytes: of any kernel, of a select, of a decode step's attention.
  double moved(uint64_t bytes) const { return static_cast<double>(bytes) / memory_bandwidth; }
  double scored(uint64_t bytes) const {
    return std::max(moved(bytes), static_cast<double>(bytes) * kernels.scored_byte);
  }
  double attended(uint64_t bytes) const {
    return std::max(moved(bytes), static_cast<double>(bytes) * kernels.attended_byte);
  }
  // Seconds of products: of matrices, of a prompt's attention.
  double multiplied(uint64_t count) const {
    return operations > 0 ? static_cast<double>(count) / operations : 0;
  }
  double prompt_attended(uint64_t count) const {
    if (operations <= 0) return 0;
    return std::max(multiplied(count), static_cast<double>(count) * kernels.prompt_operation);
  }
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
  // Query heads, those of several tokens of a sequence, for which kernels read a page's codes once.
  int page_queries = 1;
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
inline constexpr DeviceTraits kEmulatedTraits = {
    .virtual_clock = true, .low_bit_by_page = true, .page_queries = 8};

}  // namespace fasa
