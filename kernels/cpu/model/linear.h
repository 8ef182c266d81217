// A projection: weights in device memory, packed in panels, applied to the rows of a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/model/panel_kernel.h"
#include "runtime/base/dtype.h"

namespace fasa {

// Columns per panel of a matrix with `inputs` inputs.
int64_t panel_columns_for(int64_t inputs);

// The model owns the weights' memory; apply() runs as work of a stream of its device.
class Linear {
 public:
  Linear() = default;
  // kPlain: the weights are not packed, [outputs, inputs]. y_stride: elements from one row of y to
  // the next, 0: outputs.
  Linear(DType dtype, int64_t outputs, int64_t inputs, PanelOrder order = PanelOrder::kPacked,
         int64_t y_stride = 0);

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  size_t bytes() const;  // packed weights
  int64_t panels() const;
  int64_t panel_columns(int64_t panel) const;
  int64_t first_column(int64_t panel) const { return panel * columns_; }
  // `plain` [panel_columns, inputs] -> the panel's bytes in the packed weights.
  void pack(int64_t panel, const void* plain, std::byte* packed) const;
  size_t panel_offset(int64_t panel) const;
  size_t panel_bytes(int64_t panel) const;

  // x [rows, inputs], dense -> y [rows, outputs]. Reproducibility of a row: see PanelKernel.
  void apply(const std::byte* weights, const void* x, int64_t rows, float* y) const {
    apply_first(weights, x, rows, outputs_, y);
  }
  // Computes only the first `columns` outputs; further ones in the last panel may be written.
  void apply_first(const std::byte* weights, const void* x, int64_t rows, int64_t columns,
                   float* y) const;
  // Bytes read and written by apply(), by apply_first().
  uint64_t work_bytes(int64_t rows) const { return work_bytes(rows, outputs_); }
  uint64_t work_bytes(int64_t rows, int64_t columns) const;

 private:
  const PanelKernel& kernel(int64_t panel) const;
  int64_t panels_of(int64_t columns) const { return (columns + columns_ - 1) / columns_; }
  DType dtype_ = DType::kF32;
  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
  int64_t y_stride_ = 0;
  int64_t columns_ = 0;                  // per panel, except the last
  const PanelKernel* full_ = nullptr;    // for panels with columns_ columns
  const PanelKernel* narrow_ = nullptr;  // for the last panel
};

}  // namespace fasa
