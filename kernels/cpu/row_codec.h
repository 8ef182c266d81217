// Writing and reading rows on the host, one key or value at a time: the same bytes on every
// machine (tests compare with reference/row_codes.h). Attention reads rows by bodies of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/row_format.h"
#include "runtime/base/tensor_view.h"

namespace fasa::cpu {

// The row of one token and KV head: `k` and `v` at (token, head), rounded; zeros behind.
void write_row(const RowFormat& format, const ConstTensorView& k, const ConstTensorView& v,
               int64_t token, int64_t head, std::byte* row);

// A key or value as elements of a tensor's dtype.
struct RowElements {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
};
// Where they lie in the row; of a coded row, decoded in memory of the calling thread, until its next
// call of the same function.
RowElements row_key(const RowFormat& format, const std::byte* row);
RowElements row_value(const RowFormat& format, const std::byte* row);

}  // namespace fasa::cpu
