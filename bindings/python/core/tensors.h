// Tensors of other libraries as views of their memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

#include "runtime/base/tensor_view.h"
#include "runtime/fasa.hpp"

namespace fasa::python {

namespace nb = nanobind;

// A view of a tensor [tokens, heads, dim] of another library, and a reference that keeps it alive.
class BorrowedTensor {
 public:
  // Imports through DLPack or the buffer protocol, without a copy; NumPy's bfloat16 is ml_dtypes'.
  // `name` names the tensor in messages. Throws UsageError for another dtype or number of
  // dimensions, a last dimension that is not dense, and, if `writable`, a read-only tensor. A
  // device that runs host code accepts host memory only; for a GPU see caller_memory.h.
  static BorrowedTensor from(const Device& device, nb::handle object, const char* name,
                             bool writable);

  const TensorView& view() const { return view_; }
  ConstTensorView const_view() const { return view_; }

 private:
  TensorView view_;
  nb::ndarray<nb::ro> owner_;
};

// A PyTorch tensor as a tuple (address, dtype, tokens, heads, dim, token stride, head stride),
// which avoids DLPack's cost per layer and step. dtype: 0 f32, 1 f16, 2 bf16.
TensorView view_of_parts(const nb::tuple& parts);

}  // namespace fasa::python
