// Reads rows of a cache into host memory.
#pragma once

#include <cstring>

#include "runtime/base/tensor_view.h"
#include "runtime/fasa.hpp"

namespace fasa::python {

// Whether the device's kernels can access any host memory, including NumPy's.
inline bool takes_host_memory(const Device& device) { return device.host_work() != nullptr; }

// Throws UsageError if results need new arrays and the device cannot write NumPy's.
void require_own_results(const Device& device, bool out_given, bool lse);

// Calls `read(k, v)`, which completes before it returns, to fill dense tensors in host memory. Goes
// through pinned memory if the device cannot access other host memory.
template <typename Read>
void read_to_host(Device& device, const TensorView& k, const TensorView& v, const Read& read) {
  if (takes_host_memory(device)) return read(k, v);
  const auto bytes_of = [](const TensorView& view) {
    return static_cast<size_t>(view.tokens * view.heads * view.dim * dtype_bytes(view.dtype));
  };
  const Buffer keys = device.allocate(MemorySpace::kHost, bytes_of(k), "rows that are read");
  const Buffer values = device.allocate(MemorySpace::kHost, bytes_of(v), "rows that are read");
  TensorView k_there = k, v_there = v;
  k_there.data = keys.data();
  v_there.data = values.data();
  read(k_there, v_there);
  if (bytes_of(k) > 0) std::memcpy(k.data, keys.data(), bytes_of(k));
  if (bytes_of(v) > 0) std::memcpy(v.data, values.data(), bytes_of(v));
}

}  // namespace fasa::python
