#include "runtime/llm/kernel_projection.h"

#include <algorithm>

#include "runtime/llm/packed_scratch.h"

namespace fasa {
namespace {

// Calls with (phase, rows) for each run, of which `rows` are all.
template <typename Rows, typename Call>
void for_runs(const PackedLinear& linear, Rows rows, RowRuns runs, const Call& call) {
  for (const RowRun& run : runs) {
    rows.rows = run.rows;
    call(run.mode, rows);
    rows.x += run.rows * linear.inputs() * dtype_bytes(linear.dtype());
    rows.y += run.rows * linear.y_stride();
  }
}

}  // namespace

void KernelProjection::product(const Rows& rows, const ProjectParams& shape,
                               OperationTag tag) const {
  ProjectParams params = shape;
  params.dtype = dtype_;
  params.rows = rows.rows;
  params.x = rows.x;
  params.y = rows.y;
  params.scratch = scratch_.product;
  device_.enqueue(params, stream_, tag);
}

void KernelProjection::decode(const Matrix::Part& part, const Rows& rows, int64_t columns,
                              OperationTag tag) const {
  const auto& linear = std::get<PackedLinear>(part.linear);
  device_.enqueue(ProjectPackedParams{.dtype = dtype_,
                                      .rows = rows.rows,
                                      .columns = columns,
                                      .y_stride = linear.y_stride(),
                                      .weights = packed_weights(linear, part.data, part.order),
                                      .x = rows.x,
                                      .y = rows.y,
                                      .scratch = scratch_.packed},
                  stream_, tag);
}

// A slab is unpacked once for all runs.
void KernelProjection::prefill(const Matrix::Part& part, const Rows& all, RowRuns runs,
                               int64_t columns, OperationTag tag) const {
  const auto& linear = std::get<PackedLinear>(part.linear);
  const int64_t step = slab_columns(linear);
  for (int64_t first = 0; first < columns; first += step) {
    const int64_t count = std::min(step, columns - first);
    device_.enqueue(UnpackParams{.dtype = dtype_,
                                 .first = first,
                                 .columns = count,
                                 .weights = packed_weights(linear, part.data, part.order),
                                 .plain = scratch_.packed},
                    stream_, tag);
    for_runs(linear, all, runs, [&](StepMode mode, Rows rows) {
      if (mode == StepMode::kDecode) return;
      rows.y += first;
      product(rows,
              {.inputs = linear.inputs(),
               .columns = count,
               .y_stride = linear.y_stride(),
               .weights = scratch_.packed},
              tag);
    });
  }
}

void KernelProjection::enqueue(const Matrix& matrix, const void* x, RowRuns runs, int64_t columns,
                               float* y, OperationTag tag) const {
  const bool prefills = std::any_of(
      runs.begin(), runs.end(), [](const RowRun& run) { return run.mode != StepMode::kDecode; });
  for (const Matrix::Part& part : matrix.parts()) {
    const int64_t wanted = std::min(columns - part.first, part.outputs());
    if (wanted <= 0) break;
    const Rows all = {static_cast<const std::byte*>(x), rows_of(runs), y + part.first};
    const auto* const packed = std::get_if<PackedLinear>(&part.linear);
    if (packed == nullptr) {
      product(all,
              {.inputs = matrix.inputs(),
               .columns = wanted,
               .y_stride = matrix.outputs(),
               .weights = part.data},
              tag);
      continue;
    }
    for_runs(*packed, all, runs, [&](StepMode mode, const Rows& rows) {
      if (mode == StepMode::kDecode) decode(part, rows, wanted, tag);
    });
    if (prefills) prefill(part, all, runs, wanted, tag);
  }
}

}  // namespace fasa
