// A quantised matrix as stored in its file, read as rows of codes and per-group numbers. Kernels'
// panels are packed from it (kernels/packed_format.h).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/packed_format.h"

namespace fasa {

// Rows of a PackedTensor, with the numbers of the kernels' PackedRow.
class CodeRows {
 public:
  CodeRows(const PackedFormat& format, int64_t places, int64_t rows);

  uint8_t* codes(int64_t row) { return codes_.data() + row * places_; }
  float* scales(int64_t row) { return scales_.data() + row * panel_.groups; }
  float* offsets(int64_t row) { return offsets_.data() + row * panel_.groups; }
  float* super_scales(int64_t row) { return super_scales_.data() + row * panel_.supers; }
  float* super_offsets(int64_t row) { return super_offsets_.data() + row * panel_.supers; }
  PackedRow row(int64_t index);

 private:
  int64_t places_;
  PackedPanel panel_;
  std::vector<uint8_t> codes_;
  std::vector<float> scales_, offsets_, super_scales_, super_offsets_;
};

// MXFP4: blocks of 32 share a power of two, stored as an eight-bit exponent with this bias.
inline constexpr int kMxfp4Block = 32;
inline constexpr int kMxfp4Bias = 127;
inline PackedFormat mxfp4_format() {
  return {.group = kMxfp4Block,
          .scale = ScaleKind::kBF16,
          .has_table = true,
          .table = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6}};
}

class PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  PackedTensor(const PackedTensor&) = delete;  // weight views point to it
  PackedTensor& operator=(const PackedTensor&) = delete;

  std::span<const int64_t> shape() const { return shape_; }
  int64_t outputs() const { return shape_[0]; }
  int64_t inputs() const { return shape_[1]; }

  // False if no panel format holds the weights exactly: they can only be dequantised.
  bool packs() const { return packs_; }
  const PackedFormat& format() const { return format_; }
  // The input at each position, -1 = padding; empty: in order. Its size is a multiple of
  // kPackedBlock.
  const std::vector<int32_t>& order() const { return order_; }
  int64_t places() const;

  // Reads codes and numbers of rows [first, first + count) into `out`, which must be zeroed.
  // Thread-safe.
  virtual void read(int64_t first, int64_t count, CodeRows* out) const = 0;
  // The same rows as f32, [count, inputs], with inputs in their original order.
  virtual void dequantise(int64_t first, int64_t count, float* out) const;

 protected:
  PackedTensor(int64_t outputs, int64_t inputs) : shape_{outputs, inputs} {}
  void set_format(const PackedFormat& format) { format_ = format; }
  void set_unpackable() { packs_ = false; }
  // Groups of any size and order: input i belongs to group groups[i] of `count`. Sets the order and
  // the format's group size; inputs that are already in order stay so. Throws InputError if padding
  // would multiply the size: groups with few inputs, or of very different sizes.
  void set_groups(std::span<const int32_t> groups, int64_t count);
  // Groups of `group` inputs in order.
  void set_groups(int64_t group);
  // The input at a position, -1 for padding.
  int64_t input_of(int64_t place) const {
    const int64_t input = order_.empty() ? place : order_[static_cast<size_t>(place)];
    return input < shape_[1] ? input : -1;
  }

 private:
  int64_t shape_[2];
  bool packs_ = true;
  PackedFormat format_;
  std::vector<int32_t> order_;
};

}  // namespace fasa
