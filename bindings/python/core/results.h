// Results of calls as NumPy arrays: of attention, and rows that are read from a cache.
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "bindings/python/core/tensors.h"
#include "runtime/base/error.h"
#include "runtime/base/tensor_view.h"
#include "runtime/fasa.hpp"

namespace fasa::python {

namespace nb = nanobind;

// Whether the device's kernels can access any host memory, including NumPy's.
inline bool takes_host_memory(const Device& device) { return device.host_work() != nullptr; }

// Throws UsageError if results need new arrays and the device cannot write NumPy's.
void require_own_results(const Device& device, bool out_given, bool lse);

// A new NumPy array of floats, not initialised; sets `data` to its memory.
template <size_t N>
nb::object new_array(float*& data, const std::array<size_t, N>& shape) {
  size_t count = 1;
  for (const size_t extent : shape) count *= extent;
  data = new float[count];
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, float>(data, N, shape.data(), owner));
}

// Calls `attend(out, lse)` with memory for the results of so many tokens: `out` or a new array, and
// the log-sum-exp if `lse` requests it. Returns the results.
template <typename Attend>
nb::object with_results(const Device& device, const Geometry& geometry, int64_t tokens,
                        nb::object out, bool lse, const Attend& attend) {
  const auto count = static_cast<size_t>(tokens);
  const auto heads = static_cast<size_t>(geometry.query_heads);
  require_own_results(device, !out.is_none(), lse);
  if (out.is_none()) {
    float* data = nullptr;
    out = new_array(data, std::array{count, heads, static_cast<size_t>(geometry.value_dim)});
  }
  const BorrowedTensor result = BorrowedTensor::from(device, out, "out", true);
  float* sums = nullptr;
  nb::object sums_array;
  if (lse) sums_array = new_array(sums, std::array{count, heads});
  attend(result.view(), sums);
  return lse ? nb::object(nb::make_tuple(out, sums_array)) : out;
}

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

// Keys and values of `count` tokens from `first` on as new arrays, each [tokens, kv_heads, dim];
// `read` as above, without the GIL.
template <typename Read>
nb::object rows_read(Device& device, const Geometry& geometry, int64_t first, int64_t count,
                     const Read& read) {
  if (first < 0 || count < 0) {
    throw UsageError(fmt::format("read of {} tokens from {}; allowed: 0 or more", count, first));
  }
  const auto tensor = [&](nb::object* array, int dim) {
    float* data = nullptr;
    *array = new_array(
        data, std::array{static_cast<size_t>(count), static_cast<size_t>(geometry.kv_heads),
                         static_cast<size_t>(dim)});
    return TensorView::dense(data, DType::kF32, count, geometry.kv_heads, dim);
  };
  nb::object k, v;
  const TensorView keys = tensor(&k, geometry.key_dim);
  const TensorView values = tensor(&v, geometry.value_dim);
  {
    const nb::gil_scoped_release release;
    read_to_host(device, keys, values, read);
  }
  return nb::make_tuple(k, v);
}

}  // namespace fasa::python
