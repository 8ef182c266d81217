// Projections as kernels of the device: plain weights by one product; packed ones as they lie in
// decode, and slab by slab through scratch memory in prefill.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/calls.h"
#include "offload/device.h"
#include "runtime/base/dtype.h"
#include "runtime/llm/matrix.h"

namespace fasa {

class KernelProjection {
 public:
  // Of all projections, one after the other on one stream.
  struct Scratch {
    std::byte* product = nullptr;  // DeviceTraits::project_scratch
    std::byte* packed = nullptr;   // WeightBytes::kernel_scratch
  };
  KernelProjection(Device& device, StreamView stream, DType dtype, const Scratch& scratch)
      : device_(device), stream_(stream), dtype_(dtype), scratch_(scratch) {}

  const Scratch& scratch() const { return scratch_; }
  // x [rows, inputs], dense -> the first `columns` outputs of y [rows, matrix.outputs()].
  void enqueue(const Matrix& matrix, const void* x, RowRuns runs, int64_t columns, float* y,
               OperationTag tag) const;

 private:
  struct Rows {
    const std::byte* x;
    int64_t rows;
    float* y;
  };
  void product(const Rows& rows, const ProjectParams& shape, OperationTag tag) const;
  void decode(const Matrix::Part& part, const Rows& rows, int64_t columns, OperationTag tag) const;
  void prefill(const Matrix::Part& part, const Rows& all, RowRuns runs, int64_t columns,
               OperationTag tag) const;

  Device& device_;
  StreamView stream_;
  DType dtype_;
  Scratch scratch_;
};

}  // namespace fasa
