// Rows of activations as packed weights multiply them: in the weights' order of inputs, zero-padded
// to whole blocks, in the type of the bodies, with their sums per step.
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
  kInt8,       // rounded by blocks of 32 places; bytes in the bodies' order
  kInt8InF32,  // the same integers for bodies without byte products
};

struct PackedInputShape {
  PackedInputKind kind = PackedInputKind::kF32;
  DType dtype = DType::kF32;  // of the activations
  int64_t inputs = 0;
  int64_t places = 0;
  std::span<const int32_t> order;  // input of a place, -1: none; empty: in order
  int64_t step = 0;
  bool sums = false;  // whether to compute sums
};

class PackedInput {
 public:
  // x [rows, inputs] in the shape's dtype, dense. Points into x if nothing has to change.
  PackedInput(const PackedInputShape& shape, const void* x, int64_t rows);

  const void* row(int64_t index) const { return data_ + index * row_bytes_; }
  int64_t stride() const { return places_; }
  const float* sums(int64_t row) const {
    return sums_.empty() ? nullptr : sums_.data() + row * steps_;
  }
  const float* scales(int64_t row) const {
    return scales_.empty() ? nullptr : scales_.data() + row * steps_;
  }
  // Sums of a step's integers.
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
