// Arrays for results, when the caller passes none.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>

namespace fasa::python {

namespace nb = nanobind;

// A new NumPy array of floats, not initialised; sets `data` to its memory.
template <size_t N>
nb::object new_array(float*& data, const std::array<size_t, N>& shape) {
  size_t count = 1;
  for (const size_t extent : shape) count *= extent;
  data = new float[count];
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, float>(data, N, shape.data(), owner));
}

}  // namespace fasa::python
