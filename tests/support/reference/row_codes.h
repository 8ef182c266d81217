// Coded rows, one code at a time, as row_format.h defines them: the oracle of every writer and
// reader of rows.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/row_format.h"
#include "runtime/base/tensor_view.h"

namespace fasa::reference {

// Same as cpu::write_row, for every row dtype.
void write_row(const RowFormat& format, const ConstTensorView& k, const ConstTensorView& v,
               int64_t token, int64_t head, std::byte* row);

// The decoded key of a row.
std::vector<float> row_key(const RowFormat& format, const std::byte* row);
std::vector<float> row_value(const RowFormat& format, const std::byte* row);

}  // namespace fasa::reference
