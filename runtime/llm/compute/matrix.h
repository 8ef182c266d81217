// A projection's weights in device memory: plain, packed, or rows of both kinds (a layer's queries
// may be packed while its values are not).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "kernels/cpu/model/linear.h"
#include "kernels/cpu/model/packed_linear.h"
#include "kernels/params.h"

namespace fasa {

// Adjacent rows of a step in the same phase. Packed weights are read as stored in decode and
// unpacked in prefill, whatever the number of rows.
struct RowRun {
  int64_t rows = 0;
  StepMode mode = StepMode::kDecode;
};
using RowRuns = std::span<const RowRun>;
int64_t rows_of(RowRuns runs);
// Appends rows; adjacent rows of one phase join one run, which reads the weights once.
void add_rows(std::vector<RowRun>* runs, int64_t rows, StepMode mode);

// The model owns the weights' memory; apply() runs as work of a stream of its device.
class Matrix {
 public:
  struct Part {
    int64_t first = 0;  // output row
    std::variant<Linear, PackedLinear> linear;
    const std::byte* data = nullptr;
    const int32_t* order = nullptr;  // packed, for kernels: positions of the inputs, on the device

    int64_t outputs() const;
    size_t bytes() const;
  };

  Matrix() = default;
  Matrix(int64_t outputs, int64_t inputs) : outputs_(outputs), inputs_(inputs) {}

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  std::vector<Part>& parts() { return parts_; }  // cover all outputs, in order
  const std::vector<Part>& parts() const { return parts_; }
  // The weights of a matrix with one plain part, for batched kernels.
  const std::byte* data() const { return parts_.front().data; }

  // x [rows, inputs] -> y [rows, outputs], both dense.
  void apply(const void* x, RowRuns runs, float* y) const { apply_first(x, runs, outputs_, y); }
  // Computes the first `columns` outputs only; some of the other outputs may be written.
  void apply_first(const void* x, RowRuns runs, int64_t columns, float* y) const;
  size_t bytes() const;  // of the weights
  // Bytes that apply() and apply_first() read and write.
  uint64_t work_bytes(int64_t rows) const { return work_bytes(rows, outputs_); }
  uint64_t work_bytes(int64_t rows, int64_t columns) const;
  // Operations of apply() and apply_first().
  uint64_t operations(int64_t rows) const { return operations(rows, outputs_); }
  uint64_t operations(int64_t rows, int64_t columns) const {
    return 2 * static_cast<uint64_t>(rows * std::min(columns, outputs_) * inputs_);
  }

 private:
  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
  std::vector<Part> parts_;
};

}  // namespace fasa
