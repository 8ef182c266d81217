// The multiplication that projections are made of: a panel of weight columns, packed once, times
// any number of rows. A row's bits depend on nothing but the row and the panel: not on how many
// rows there are, which thread runs it, or how many there are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/dtype.h"

namespace fasa {

// kPlain: weights as they came, [columns, inputs], for devices whose kernels read them.
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
  // The same from [inputs, stride], columns side by side, of which the panel's are the first.
  virtual void pack_by_input(const void* plain, int64_t stride, void* packed) const = 0;
  // y[row][column] = Σ x[row][i] · w[column][i] in f32; x [rows, inputs], dense. Any thread.
  virtual void run(int64_t rows, const void* x, const void* packed, float* y) const = 0;
  virtual const char* name() const = 0;

  // Made on first use, kept for the process. oneDNN where it has the dtype on this processor.
  static const PanelKernel& get(const PanelShape& shape);
};

}  // namespace fasa
