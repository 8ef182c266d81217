#include "runtime/llm/compute/matrix.h"

#include <algorithm>

namespace fasa {
namespace {

void apply_packed(const PackedLinear& linear, const std::byte* weights, const std::byte* x,
                  RowRuns runs, int64_t columns, float* y) {
  for (const RowRun& run : runs) {
    const auto apply =
        run.mode == StepMode::kDecode ? &PackedLinear::decode : &PackedLinear::prefill;
    (linear.*apply)(weights, x, run.rows, columns, y);
    x += run.rows * linear.inputs() * dtype_bytes(linear.dtype());
    y += run.rows * linear.y_stride();
  }
}

}  // namespace

int64_t rows_of(RowRuns runs) {
  int64_t rows = 0;
  for (const RowRun& run : runs) rows += run.rows;
  return rows;
}

void add_rows(std::vector<RowRun>* runs, int64_t rows, StepMode mode) {
  if (runs->empty() || runs->back().mode != mode) runs->push_back({0, mode});
  runs->back().rows += rows;
}

int64_t Matrix::Part::outputs() const {
  return std::visit([](const auto& of) { return of.outputs(); }, linear);
}

size_t Matrix::Part::bytes() const {
  return std::visit([](const auto& of) { return of.bytes(); }, linear);
}

void Matrix::apply_first(const void* x, RowRuns runs, int64_t columns, float* y) const {
  for (const Part& part : parts_) {
    const int64_t wanted = std::min(columns - part.first, part.outputs());
    if (wanted <= 0) break;
    if (const auto* plain = std::get_if<Linear>(&part.linear)) {
      plain->apply_first(part.data, x, rows_of(runs), wanted, y + part.first);
    } else {
      apply_packed(std::get<PackedLinear>(part.linear), part.data, static_cast<const std::byte*>(x),
                   runs, wanted, y + part.first);
    }
  }
}

size_t Matrix::bytes() const {
  size_t bytes = 0;
  for (const Part& part : parts_) bytes += part.bytes();
  return bytes;
}

uint64_t Matrix::work_bytes(int64_t rows, int64_t columns) const {
  uint64_t bytes = 0;
  for (const Part& part : parts_) {
    const int64_t wanted = std::min(columns - part.first, part.outputs());
    if (wanted <= 0) break;
    bytes += std::visit([&](const auto& of) { return of.work_bytes(rows, wanted); }, part.linear);
  }
  return bytes;
}

}  // namespace fasa
