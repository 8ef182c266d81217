// Rows of activations as packed weights multiply them: in the weights' order of inputs, zero-padded
// to whole blocks, in the type of the bodies, with their numbers per step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/model/packed_body_types.h"
#include "runtime/base/dtype.h"

namespace fasa::cpu {

enum class PackedInputKind : uint8_t {
  kF32,
  kBF16,
  // Rounded by blocks of 32 places. An infinity or a NaN makes its block NaN.
  kInt16,
  kInt8,         // bytes in the bodies' order
  kInt8InInt16,  // the same numbers for bodies without byte products
};

constexpr bool is_whole(PackedInputKind kind) {
  return kind != PackedInputKind::kF32 && kind != PackedInputKind::kBF16;
}

struct PackedInputShape {
  PackedInputKind kind = PackedInputKind::kF32;
  DType dtype = DType::kF32;  // of the activations
  int64_t inputs = 0;
  int64_t places = 0;
  std::span<const int32_t> order;  // input of a place, -1: none; empty: in order
  int64_t step = 0;                // at most a block for whole numbers
  // The weights' whole numbers: what is subtracted from codes, and their unit.
  int centre = 0;
  float unit = 1;
};

class PackedInput {
 public:
  // x [rows, inputs] in the shape's dtype, dense.
  PackedInput(const PackedInputShape& shape, const void* x, int64_t rows);

  int64_t rows() const { return rows_; }
  // The task's arrays from row `row` on.
  const void* block(int64_t row) const { return data_.get() + row * block_bytes_; }
  const PackedNumbers* numbers(int64_t row) const { return step_numbers_.data() + row; }

 private:
  void convert(const PackedInputShape& shape, const float* x, int64_t row);
  void store_block(const PackedInputShape& shape, const float* x, int64_t block, int64_t row);

  int64_t rows_;
  int64_t block_bytes_;                      // of one row
  std::unique_ptr<std::byte[]> data_;        // [blocks][rows][block_bytes_]
  std::vector<PackedNumbers> step_numbers_;  // [steps][rows]
};

}  // namespace fasa::cpu
