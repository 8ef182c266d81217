#include "kernels/cpu/model/packed_linear.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/model/linear.h"
#include "kernels/cpu/model/packed_input.h"
#include "kernels/cpu/model/panel_kernel.h"
#include "runtime/base/parallel.h"

namespace fasa {
namespace {

constexpr int64_t kPair = cpu::kPanelsAtOnce * kPackedColumns;
// Multiplications below which a further thread costs more than it saves.
constexpr int64_t kTaskWork = 64 * 1024;
// Columns of an unpacked panel. The panel and its copy in oneDNN's layout fit the second-level
// cache (256 columns of 576 inputs did not, and took a fifth longer).
constexpr int64_t kUnpackedColumns = 128;

// Bodies add it to a table's values, which are bytes then.
constexpr int kTableCentre = 128;

// The longest divisor of a group that bodies take in one step; whole numbers have a scale per
// block.
int64_t step_of(int64_t group, cpu::PackedInputKind kind) {
  const int64_t most = cpu::is_whole(kind) ? kPackedBlock : cpu::kChunkPlaces;
  if (group <= most) return group;
  for (int64_t step = most; step > kPackedBlock; step -= kPackedBlock) {
    if (group % step == 0) return step;
  }
  return kPackedBlock;
}

// Floats of 8 bits are multiplied in f32, and tables of fractions.
cpu::PackedInputKind kind_of(const PackedLinear::Shape& shape, const cpu::PackedBodies& bodies) {
  using Kind = cpu::PackedInputKind;
  if (shape.format.is_float) return Kind::kF32;
  if (shape.activations == PackedActivations::kInt8) {
    return bodies.multiply_int8 != nullptr ? Kind::kInt8 : Kind::kInt8InInt16;
  }
  if (shape.dtype == DType::kBF16 && bodies.multiply_bf16 != nullptr) return Kind::kBF16;
  return cpu::is_whole(shape.format) ? Kind::kInt16 : Kind::kF32;
}

auto body_of(cpu::PackedInputKind kind, const cpu::PackedBodies& bodies) {
  if (kind == cpu::PackedInputKind::kF32) return bodies.multiply_f32;
  if (kind == cpu::PackedInputKind::kBF16) return bodies.multiply_bf16;
  return kind == cpu::PackedInputKind::kInt8 ? bodies.multiply_int8 : bodies.multiply_int16;
}

// Rows that a body takes at once, of those that are left: as many in each pass.
int rows_at_once(cpu::PackedInputKind kind, int64_t left) {
  const int64_t most =
      kind == cpu::PackedInputKind::kF32 ? cpu::kFewPackedRows : cpu::kManyPackedRows;
  const int64_t passes = (left + most - 1) / most;
  return static_cast<int>((left + passes - 1) / passes);
}

}  // namespace

PackedLinear::PackedLinear(Shape shape)
    : shape_(std::move(shape)), bodies_(&cpu::packed_bodies(shape_.target)) {
  places_ =
      shape_.order.empty() ? places_of(shape_.inputs) : static_cast<int64_t>(shape_.order.size());
  panel_ = PackedPanel(shape_.format, places_);
  kind_ = kind_of(shape_, *bodies_);
  step_ = step_of(shape_.format.group, kind_);
  plain_ = cpu::packed_shape(shape_.format, panel_, false);
  decoded_ = cpu::packed_shape(shape_.format, panel_, cpu::is_whole(kind_));
}

size_t PackedLinear::read_bytes(int64_t columns) const {
  const int64_t read = (std::min(columns, shape_.outputs) + kPackedColumns - 1) / kPackedColumns;
  return static_cast<size_t>(read) * panel_bytes();
}

uint64_t PackedLinear::work_bytes(int64_t rows, int64_t columns) const {
  const int64_t row_bytes =
      shape_.inputs * dtype_bytes(shape_.dtype) + columns * static_cast<int64_t>(sizeof(float));
  return read_bytes(columns) + static_cast<uint64_t>(rows * row_bytes);
}

// Multiplies two panels from pair * 2 on by all rows.
void PackedLinear::multiply(const std::byte* weights, const cpu::PackedInput& rows, int64_t pair,
                            int64_t columns, float* y) const {
  const int64_t first = pair * kPair;
  const int64_t wanted = std::min(kPair, columns - first);
  const int panels = wanted > kPackedColumns ? 2 : 1;
  const auto* const data =
      reinterpret_cast<const unsigned char*>(weights + pair * cpu::kPanelsAtOnce * panel_.bytes);
  float sums[cpu::kManyPackedRows * kPair];
  cpu::PackedTask task;
  task.shape = &decoded_;
  task.step = step_;
  task.all_rows = rows.rows();
  task.sums = shape_.format.offset != OffsetKind::kNone;
  task.y = sums;
  for (int64_t row = 0; row < rows.rows(); row += task.rows) {
    task.rows = rows_at_once(kind_, rows.rows() - row);
    task.panels = task.rows > bodies_->two_panel_rows ? 1 : panels;
    task.x = rows.block(row);
    task.numbers = rows.numbers(row);
    for (int panel = 0; panel < panels; panel += task.panels) {
      for (int i = 0; i < task.panels; ++i) task.panel[i] = data + (panel + i) * panel_.bytes;
      body_of(kind_, *bodies_)(task);
      const int64_t column = int64_t{panel} * kPackedColumns;
      const int64_t written = std::min(task.panels * kPackedColumns, wanted - column);
      for (int i = 0; i < task.rows; ++i) {
        std::copy_n(sums + i * kPair, written, y + (row + i) * shape_.y_stride + first + column);
      }
    }
  }
}

void PackedLinear::decode(const std::byte* weights, const void* x, int64_t rows, int64_t columns,
                          float* y) const {
  const cpu::PackedInput prepared({.kind = kind_,
                                   .dtype = shape_.dtype,
                                   .inputs = shape_.inputs,
                                   .places = places_,
                                   .order = shape_.order,
                                   .step = step_,
                                   .centre = decoded_.has_table ? kTableCentre : decoded_.centre,
                                   .unit = decoded_.table_unit},
                                  x, rows);
  const int64_t pairs = (columns + kPair - 1) / kPair;
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) multiply(weights, prepared, pair, columns, y);
  };
  const int64_t grain = std::max<int64_t>(1, kTaskWork / (kPair * places_));
  if (pairs <= grain) {
    run(0, pairs);
  } else {
    parallel_blocks(int64_t{0}, pairs, grain, run);
  }
}

// Multiplies columns [first, first + columns) as plain weights.
void PackedLinear::prefill_panel(const std::byte* weights, const void* x, int64_t rows,
                                 int64_t first, int64_t columns, float* y) const {
  const int64_t element = dtype_bytes(shape_.dtype);
  const int64_t stride = (columns + kPackedColumns - 1) / kPackedColumns * kPackedColumns;
  thread_local std::vector<std::byte> plain;
  thread_local std::vector<std::byte> packed;
  plain.resize(std::max(plain.size(), static_cast<size_t>(shape_.inputs * stride * element)));
  for (int64_t column = 0; column < columns; column += kPackedColumns) {
    bodies_->unpack({.shape = &plain_,
                     .panel = reinterpret_cast<const unsigned char*>(
                         weights + (first + column) / kPackedColumns * panel_.bytes),
                     .order = shape_.order.empty() ? nullptr : shape_.order.data(),
                     .inputs = shape_.inputs,
                     .bf16 = shape_.dtype == DType::kBF16,
                     .out = plain.data() + column * element,
                     .stride = stride});
  }
  const PanelKernel& kernel =
      PanelKernel::get({shape_.dtype, shape_.inputs, columns, shape_.y_stride});
  constexpr size_t kLine = 64;
  packed.resize(std::max(packed.size(), kernel.packed_bytes() + kLine));
  const auto address = reinterpret_cast<uintptr_t>(packed.data());
  std::byte* const aligned = packed.data() + (kLine - address % kLine) % kLine;
  kernel.pack_by_input(plain.data(), stride, aligned);
  kernel.run(rows, x, aligned, y + first);
}

void PackedLinear::prefill(const std::byte* weights, const void* x, int64_t rows, int64_t columns,
                           float* y) const {
  const int64_t width = std::min(panel_columns_for(shape_.inputs), kUnpackedColumns);
  const int64_t panels = (columns + width - 1) / width;
  parallel_for(int64_t{0}, panels, [&](int64_t panel) {
    const int64_t first = panel * width;
    prefill_panel(weights, x, rows, first, std::min(width, shape_.outputs - first), y);
  });
}

}  // namespace fasa
