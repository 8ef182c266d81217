// Tensors of other libraries, taken as views of their memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

#include "runtime/base/tensor_view.h"
#include "runtime/fasa.hpp"

namespace fasa::python {

namespace nb = nanobind;

// A tensor [tokens, heads, dim] that somebody else owns, and what keeps its memory alive.
class BorrowedTensor {
 public:
  // Through DLPack or the buffer protocol, without a copy; NumPy's bfloat16 is ml_dtypes'. `name`
  // names the tensor in messages. Throws UsageError for another dtype or number of dimensions, a
  // last dimension that is not dense, and, if `writable`, a read-only tensor. A device that runs
  // host code accepts host memory only; for a GPU see caller_memory.h.
  static BorrowedTensor from(const Device& device, nb::handle object, const char* name,
                             bool writable);

  const TensorView& view() const { return view_; }
  ConstTensorView const_view() const { return view_; }

 private:
  TensorView view_;
  nb::ndarray<nb::ro> owner_;
};

// A tensor as PyTorch knows it, (address, dtype, tokens, heads, dim, token stride, head stride):
// none of DLPack's cost in every layer of every step. dtype: 0 f32, 1 f16, 2 bf16.
TensorView view_of_parts(const nb::tuple& parts);

}  // namespace fasa::python
