// The multiplication behind projections: a panel of weight columns, packed once, times any number
// of rows. A row's bits depend only on the row and the panel, not on the number of rows or on
// threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/dtype.h"

namespace fasa {

// kPlain: weights not packed, [columns, inputs], for devices whose kernels read them.
enum class PanelOrder : uint8_t { kPacked, kPlain };

struct PanelShape {
  DType dtype = DType::kF32;  // of x and weights: f32 or bf16
  int64_t inputs = 0;
  int64_t columns = 0;
  int64_t y_stride = 0;  // elements from one row of y to the next
  PanelOrder order = PanelOrder::kPacked;
  auto operator<=>(const PanelShape&) const = default;
};

class PanelKernel {
 public:
  virtual ~PanelKernel() = default;

  virtual size_t packed_bytes() const = 0;
  // `plain`: [columns, inputs] of the shape's dtype.
  virtual void pack(const void* plain, void* packed) const = 0;
  // The same from [inputs, stride] with columns side by side; the panel's columns come first.
  virtual void pack_by_input(const void* plain, int64_t stride, void* packed) const = 0;
  // y[row][column] = Σ x[row][i] · w[column][i] in f32; x [rows, inputs], dense. Thread-safe.
  virtual void run(int64_t rows, const void* x, const void* packed, float* y) const = 0;
  virtual const char* name() const = 0;

  // Created on first use, cached for the process. Uses oneDNN if it supports the dtype on this
  // processor.
  static const PanelKernel& get(const PanelShape& shape);
};

}  // namespace fasa
