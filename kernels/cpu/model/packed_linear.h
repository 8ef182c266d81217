// A projection by packed weights: multiplied packed for decode, unpacked panel by panel for
// prefill.
//
// The caller chooses between the two by phase, never by the number of rows, because they sum in
// different orders. Within each, a row's bits depend only on the row and the weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/model/packed_bodies.h"
#include "kernels/cpu/model/packed_input.h"
#include "kernels/packed_format.h"
#include "runtime/base/dtype.h"

namespace fasa {

// Precision of activations in decode: the model's, or int8 with a scale per 32. The model's are
// rounded to 16 bits with a scale per 32, to 2^-16 of the largest, but where bodies take bf16, and
// for weights that are no whole numbers of a unit.
enum class PackedActivations : uint8_t { kModel, kInt8 };

class PackedLinear {
 public:
  struct Shape {
    PackedFormat format = {};
    int64_t outputs = 0;
    int64_t inputs = 0;
    std::vector<int32_t> order = {};  // [places], see PackedTensor; empty: in order
    DType dtype = DType::kF32;        // of activations: f32, bf16
    int64_t y_stride = 0;             // elements from one row of y to the next
    PackedActivations activations = PackedActivations::kModel;
    cpu::Target target = cpu::active_target();
  };
  explicit PackedLinear(Shape shape);

  const PackedFormat& format() const { return shape_.format; }
  int64_t outputs() const { return shape_.outputs; }
  int64_t inputs() const { return shape_.inputs; }
  int64_t places() const { return places_; }
  const std::vector<int32_t>& order() const { return shape_.order; }
  int64_t panels() const { return (shape_.outputs + kPackedColumns - 1) / kPackedColumns; }
  const PackedPanel& panel() const { return panel_; }
  size_t panel_bytes() const { return static_cast<size_t>(panel_.bytes); }
  size_t bytes() const { return static_cast<size_t>(panels()) * panel_bytes(); }
  // Bytes that decode reads for the first `columns` outputs.
  size_t read_bytes(int64_t columns) const;
  // Bytes read and written for `rows` rows and the first `columns` outputs.
  uint64_t work_bytes(int64_t rows, int64_t columns) const;
  DType dtype() const { return shape_.dtype; }
  int64_t y_stride() const { return shape_.y_stride; }

  // x [rows, inputs] dense, y [rows, y_stride]: writes the first `columns` outputs.
  void decode(const std::byte* weights, const void* x, int64_t rows, int64_t columns,
              float* y) const;
  void prefill(const std::byte* weights, const void* x, int64_t rows, int64_t columns,
               float* y) const;

  // The number of places of a matrix with `inputs` inputs in natural order.
  static int64_t places_of(int64_t inputs) {
    return (inputs + kPackedBlock - 1) / kPackedBlock * kPackedBlock;
  }

 private:
  void multiply(const std::byte* weights, const cpu::PackedInput& rows, int64_t pair,
                int64_t columns, float* y) const;
  void prefill_panel(const std::byte* weights, const void* x, int64_t rows, int64_t first,
                     int64_t columns, float* y) const;

  Shape shape_;
  int64_t places_ = 0;
  PackedPanel panel_;
  cpu::PackedInputKind kind_ = {};  // of decode
  int64_t step_ = 0;
  cpu::PackedShape plain_;    // for prefill
  cpu::PackedShape decoded_;  // for decode: tables of whole numbers
  const cpu::PackedBodies* bodies_;
};

}  // namespace fasa
