#include "kernels/cpu/model/linear.h"

#include <algorithm>

#include "runtime/base/parallel.h"

namespace fasa {
namespace {

constexpr int64_t kRowGroup = 128;
// Multiplications below which a further thread costs more than it saves.
constexpr int64_t kTaskWork = 64 * 1024;

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

// Columns of a panel: a constant of the matrix, so that results never depend on threads. 64 is
// oneDNN's own block, and its panel stays in the second-level cache at 4096 inputs and more (with
// 256 columns weights are read at two thirds of the speed). Short rows use more columns per call,
// because a call costs a microsecond.
int64_t panel_columns_for(int64_t inputs) { return inputs < 1024 ? 256 : 64; }

Linear::Linear(DType dtype, int64_t outputs, int64_t inputs, PanelOrder order, int64_t y_stride)
    : dtype_(dtype),
      outputs_(outputs),
      inputs_(inputs),
      y_stride_(y_stride > 0 ? y_stride : outputs),
      columns_(panel_columns_for(inputs)) {
  if (outputs >= columns_) full_ = &PanelKernel::get({dtype, inputs, columns_, y_stride_, order});
  if (outputs % columns_ != 0) {
    narrow_ = &PanelKernel::get({dtype, inputs, outputs % columns_, y_stride_, order});
  }
}

int64_t Linear::panels() const { return panels_of(outputs_); }

int64_t Linear::panel_columns(int64_t panel) const {
  return std::min(columns_, outputs_ - panel * columns_);
}

const PanelKernel& Linear::kernel(int64_t panel) const {
  return panel_columns(panel) == columns_ ? *full_ : *narrow_;
}

size_t Linear::panel_bytes(int64_t panel) const { return kernel(panel).packed_bytes(); }

size_t Linear::panel_offset(int64_t panel) const {
  return panel == 0 ? 0 : static_cast<size_t>(panel) * aligned(full_->packed_bytes());
}

size_t Linear::bytes() const {
  return panel_offset(panels() - 1) + aligned(panel_bytes(panels() - 1));
}

void Linear::pack(int64_t panel, const void* plain, std::byte* packed) const {
  kernel(panel).pack(plain, packed);
}

void Linear::apply_first(const std::byte* weights, const void* x, int64_t rows, int64_t columns,
                         float* y) const {
  const int64_t groups = (rows + kRowGroup - 1) / kRowGroup;
  const auto run = [&](int64_t task) {
    const int64_t panel = task / groups;  // adjacent tasks share a panel in the cache
    const int64_t first = task % groups * kRowGroup;
    kernel(panel).run(std::min(kRowGroup, rows - first),
                      static_cast<const std::byte*>(x) + first * inputs_ * dtype_bytes(dtype_),
                      weights + panel_offset(panel), y + first * y_stride_ + first_column(panel));
  };
  const int64_t tasks = panels_of(columns) * groups;
  const int64_t work = std::min(kRowGroup, rows) * columns_ * inputs_;
  const int64_t grain = std::max<int64_t>(1, kTaskWork / std::max<int64_t>(work, 1));
  const auto each = [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) run(task);
  };
  if (tasks <= grain) {
    each(0, tasks);
  } else {
    parallel_blocks(int64_t{0}, tasks, grain, each);
  }
}

uint64_t Linear::work_bytes(int64_t rows, int64_t columns) const {
  const int64_t last = panels_of(columns) - 1;
  const int64_t computed = std::min(outputs_, (last + 1) * columns_);
  return panel_offset(last) + aligned(panel_bytes(last)) +
         static_cast<uint64_t>(rows) * (static_cast<uint64_t>(inputs_ * dtype_bytes(dtype_)) +
                                        static_cast<uint64_t>(computed) * sizeof(float));
}

}  // namespace fasa
