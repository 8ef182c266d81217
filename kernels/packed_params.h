// Parameters of the kernels that multiply and unpack packed weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_format.h"
#include "runtime/base/dtype.h"

namespace fasa {

// Panels in device memory, contiguous, in the layout of packed_format.h.
struct PackedWeights {
  PackedFormat format;
  PackedPanel panel;
  int64_t inputs = 0;
  const int32_t* order = nullptr;  // [places]: the input in a place, -1 = none; null: in order
  const std::byte* panels = nullptr;

  constexpr int64_t places() const { return panel.blocks * kPackedBlock; }
  // Whether rows of x have to be reordered, or padded to whole lines, before they are multiplied.
  constexpr bool rearranges() const { return order != nullptr || inputs % kPackedLine != 0; }
};

// x [rows, inputs] · wᵀ -> y [rows, columns], with weights read packed: decode. Sums are f32; a
// row's bits depend only on the row and the weights.
struct ProjectPackedParams {
  static constexpr const char* kName = "project_packed";
  // Rows for which the weights are read once.
  static constexpr int64_t kRowsAtOnce = 8;

  DType dtype = DType::kBF16;  // of x: f32 or bf16
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t y_stride = 0;
  PackedWeights weights;
  const void* x = nullptr;
  float* y = nullptr;
  std::byte* scratch = nullptr;  // scratch_bytes()

  static constexpr int64_t scratch_bytes(const PackedWeights& weights, DType dtype) {
    return weights.rearranges() ? kRowsAtOnce * weights.places() * dtype_bytes(dtype) : 0;
  }
};

// Columns [first, first + columns) -> plain [batch, columns, inputs], rounded to its dtype, for
// prefill's products. `batch` matrices of one shape, panels_step bytes and order_step places apart.
struct UnpackParams {
  static constexpr const char* kName = "unpack";

  DType dtype = DType::kBF16;  // f32 or bf16
  int64_t first = 0;           // a multiple of kPackedColumns
  int64_t columns = 0;
  PackedWeights weights;
  void* plain = nullptr;
  int64_t batch = 1;
  int64_t panels_step = 0;
  int64_t order_step = 0;
  // [batch + 1]: the first row to multiply of each matrix, then the end. A matrix without rows is
  // skipped. Null: all matrices have rows.
  const int32_t* rows = nullptr;
};

}  // namespace fasa
