// Rows of activations as packed weights multiply them: in the weights' order of inputs, padded with
// zeros to whole blocks, in the type that the bodies take, with their sums by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"

namespace fasa::cpu {

enum class PackedInputKind : uint8_t {
  kF32,
  kBF16,
  kInt8,       // rounded by blocks of 32 places; bytes of a line in the order that bodies take
  kInt8InF32,  // the same whole numbers for bodies without products of bytes
};

struct PackedInputShape {
  PackedInputKind kind = PackedInputKind::kF32;
  DType dtype = DType::kF32;  // of the activations
  int64_t inputs = 0;
  int64_t places = 0;
  std::span<const int32_t> order;  // input of a place, -1 = none; empty: in order
  int64_t step = 0;
  bool sums = false;  // wanted
};

class PackedInput {
 public:
  // x [rows, inputs] of the shape's dtype, dense. Points into x where nothing has to change.
  PackedInput(const PackedInputShape& shape, const void* x, int64_t rows);

  const void* row(int64_t index) const { return data_ + index * row_bytes_; }
  int64_t stride() const { return places_; }
  const float* sums(int64_t row) const {
    return sums_.empty() ? nullptr : sums_.data() + row * steps_;
  }
  const float* scales(int64_t row) const {
    return scales_.empty() ? nullptr : scales_.data() + row * steps_;
  }
  // Of the whole numbers of a step.
  const float* totals(int64_t row) const {
    return totals_.empty() ? nullptr : totals_.data() + row * steps_;
  }
  int64_t steps() const { return steps_; }

 private:
  void convert(const PackedInputShape& shape, const std::byte* x, int64_t row);
  void round_bytes(const PackedInputShape& shape, const float* x, int64_t row);
  void add_up(const PackedInputShape& shape, int64_t row);

  int64_t places_;
  int64_t steps_;
  int64_t row_bytes_ = 0;
  const std::byte* data_ = nullptr;
  std::vector<std::byte> copy_;
  std::vector<float> sums_;    // [rows][steps]
  std::vector<float> scales_;  // [rows][steps]
  std::vector<float> totals_;  // [rows][steps]
};

}  // namespace fasa::cpu
