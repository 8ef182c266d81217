// A projection and its place in device memory: plain weights, packed ones, or parts of both one
// below the other (a layer's queries may be packed where its values are not).
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "kernels/cpu/model/linear.h"
#include "kernels/cpu/model/packed_linear.h"
#include "kernels/params.h"

namespace fasa {

// Rows of a step side by side that are of one phase: packed weights are multiplied as they lie in
// decode, unpacked in prefill, whatever the number of rows.
struct RowRun {
  int64_t rows = 0;
  StepMode mode = StepMode::kDecode;
};
using RowRuns = std::span<const RowRun>;
int64_t rows_of(RowRuns runs);
// Neighbours of one phase are one run: they read the weights once.
void add_rows(std::vector<RowRun>* runs, int64_t rows, StepMode mode);

// The weights' memory belongs to the model; apply() runs as work of a stream of its device.
class Matrix {
 public:
  struct Part {
    int64_t first = 0;  // output
    std::variant<Linear, PackedLinear> linear;
    const std::byte* data = nullptr;

    int64_t outputs() const;
    size_t bytes() const;
  };

  Matrix() = default;
  Matrix(int64_t outputs, int64_t inputs) : outputs_(outputs), inputs_(inputs) {}

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  std::vector<Part>& parts() { return parts_; }  // cover the outputs in order
  const std::vector<Part>& parts() const { return parts_; }
  // The weights of a matrix that is one plain part, as kernels of a device read them.
  const std::byte* data() const { return parts_.front().data; }

  // x [rows, inputs] -> y [rows, outputs], both dense.
  void apply(const void* x, RowRuns runs, float* y) const { apply_first(x, runs, outputs_, y); }
  // The first `columns` outputs only; of the others whole panels may be written or nothing.
  void apply_first(const void* x, RowRuns runs, int64_t columns, float* y) const;
  size_t bytes() const;  // of the weights
  // Read and written by apply(), by apply_first().
  uint64_t work_bytes(int64_t rows) const { return work_bytes(rows, outputs_); }
  uint64_t work_bytes(int64_t rows, int64_t columns) const;

 private:
  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
  std::vector<Part> parts_;
};

}  // namespace fasa
