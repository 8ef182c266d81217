// What a kind of device is like, as far as plans, settings and callers depend on it: the same for a
// device that is open and for one that is only named (gpu_traits.h).
#pragma once

#include <cstdint>

#include "kernels/layout.h"

namespace fasa {

// Bytes of device memory that a select over `count` sequences works in. Contents need not be kept,
// and what a smaller select works in fits into a larger one's.
using SelectScratchBytes = uint64_t (*)(const CacheLayout& layout, int count,
                                        int selected_capacity);

// How fast a device is, as far as the host has to know beforehand. Bytes per second, seconds.
struct DeviceRates {
  double memory_bandwidth = 300e9;
  double launch_seconds = 4e-6;
  double link_bandwidth = 25e9;  // host to device
  double link_latency = 10e-6;   // of a transfer, beside its bytes' time
};

struct DeviceTraits {
  // Device and host memory are one tier: rows stay where they are written.
  bool unified = false;
  // Work is done when the call that enqueues it returns: host code may read what it made.
  bool done_on_return = false;
  // Seconds are computed, not measured.
  bool virtual_clock = false;
  // The calls of a model's own work (ModelCalls) can be enqueued.
  bool model_calls = false;
  // Timelines know what kernels move over the link; else they know it of copies alone.
  bool times_kernel_bytes = true;
  SelectScratchBytes select_scratch = nullptr;  // null: none
  // Bytes of device memory that a projection works in: asked for by models alone, for it may load a
  // library. Null: none.
  uint64_t (*project_scratch)() = nullptr;
  // Whether a select can score slices of so many dimensions for so many query heads on a KV head;
  // null: any.
  bool (*scores)(int group, int slice_dims) = nullptr;
  DeviceRates rates = {};
};

// The processor, and an accelerator that it emulates.
inline constexpr DeviceTraits kHostTraits = {.unified = true, .done_on_return = true};
inline constexpr DeviceTraits kEmulatedTraits = {.virtual_clock = true};

}  // namespace fasa
