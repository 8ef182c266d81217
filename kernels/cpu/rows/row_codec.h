// Writes and reads rows on the host, one key or value at a time: the same bytes on every machine
// (tests compare with reference/row_codes.h). Attention has its own bodies for reading rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/row_format.h"
#include "runtime/base/tensor_view.h"

namespace fasa::cpu {

// Writes the row of one token and KV head: `k` and `v` at (token, head), rounded, zero-padded.
void write_row(const RowFormat& format, const ConstTensorView& k, const ConstTensorView& v,
               int64_t token, int64_t head, std::byte* row);

// A key or value as elements of a tensor's dtype.
struct RowElements {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
};
// Points into the row; for a coded row, to decoded elements in thread-local memory, valid until the
// thread's next call of the same function.
RowElements row_key(const RowFormat& format, const std::byte* row);
RowElements row_value(const RowFormat& format, const std::byte* row);

}  // namespace fasa::cpu
