#include "runtime/llm/compute/kernel_sink.h"

#include <algorithm>

#include "runtime/llm/compute/expert_kernels.h"
#include "runtime/llm/compute/packed_scratch.h"

namespace fasa {
namespace {

// Calls with (phase, rows) for each run; `rows` are the run's part of all rows. `x_bytes` are those
// of a row of x, `y_stride` the elements from one row of y to the next.
template <typename Rows, typename Call>
void for_runs(Rows rows, RowRuns runs, int64_t x_bytes, int64_t y_stride, const Call& call) {
  for (const RowRun& run : runs) {
    rows.rows = run.rows;
    call(run.mode, rows);
    rows.x += run.rows * x_bytes;
    rows.y += run.rows * y_stride;
  }
}
template <typename Rows, typename Call>
void for_runs(const PackedLinear& linear, Rows rows, RowRuns runs, const Call& call) {
  for_runs(rows, runs, linear.inputs() * dtype_bytes(linear.dtype()), linear.y_stride(), call);
}

}  // namespace

void KernelSink::run(const RowCalls::Call& call) {
  std::visit([&](const auto& params) { enqueue(params); }, call);
}

void KernelSink::run_linear(const LinearCall& call) {
  std::visit([&](const auto& params) { enqueue(params); }, call);
}

void KernelSink::products(const Rows& all, RowRuns runs, ProjectParams shape) const {
  const int64_t x_bytes = shape.row_stride() * dtype_bytes(parts_.dtype);
  for_runs(all, runs, x_bytes, shape.y_stride, [&](StepMode mode, const Rows& rows) {
    shape.apart = mode == StepMode::kDecode;
    product(rows, shape);
  });
}

void KernelSink::product(const Rows& rows, ProjectParams shape) const {
  shape.dtype = parts_.dtype;
  shape.rows = rows.rows;
  shape.x = rows.x;
  shape.y = rows.y;
  shape.scratch = scratch_.product;
  enqueue(shape);
}

void KernelSink::decode(const Matrix::Part& part, const Rows& rows, int64_t columns) const {
  const auto& linear = std::get<PackedLinear>(part.linear);
  enqueue(ProjectPackedParams{.dtype = parts_.dtype,
                              .rows = rows.rows,
                              .columns = columns,
                              .y_stride = linear.y_stride(),
                              .weights = packed_weights(linear, part.data, part.order),
                              .x = rows.x,
                              .y = rows.y,
                              .scratch = scratch_.packed});
}

// Each slab is unpacked once, for all runs.
void KernelSink::prefill(const Matrix::Part& part, const Rows& all, RowRuns runs,
                         int64_t columns) const {
  const auto& linear = std::get<PackedLinear>(part.linear);
  const int64_t step = slab_columns(linear);
  for (int64_t first = 0; first < columns; first += step) {
    const int64_t count = std::min(step, columns - first);
    enqueue(UnpackParams{.dtype = parts_.dtype,
                         .first = first,
                         .columns = count,
                         .weights = packed_weights(linear, part.data, part.order),
                         .plain = scratch_.packed});
    for_runs(linear, all, runs, [&](StepMode mode, Rows rows) {
      if (mode == StepMode::kDecode) return;
      rows.y += first;
      product(rows, {.inputs = linear.inputs(),
                     .columns = count,
                     .y_stride = linear.y_stride(),
                     .weights = scratch_.packed});
    });
  }
}

void KernelSink::project(const Matrix& matrix, const std::byte* x, RowRuns runs, int64_t columns,
                         float* y) {
  const bool prefills = std::any_of(
      runs.begin(), runs.end(), [](const RowRun& run) { return run.mode != StepMode::kDecode; });
  for (const Matrix::Part& part : matrix.parts()) {
    const int64_t wanted = std::min(columns - part.first, part.outputs());
    if (wanted <= 0) break;
    const Rows all = {x, rows_of(runs), y + part.first};
    const auto* const packed = std::get_if<PackedLinear>(&part.linear);
    if (packed == nullptr) {
      products(all, runs,
               {.inputs = matrix.inputs(),
                .columns = wanted,
                .y_stride = matrix.outputs(),
                .weights = part.data});
      continue;
    }
    for_runs(*packed, all, runs, [&](StepMode mode, const Rows& rows) {
      if (mode == StepMode::kDecode) decode(part, rows, wanted);
    });
    if (prefills) prefill(part, all, runs, wanted);
  }
}

// The heads' matrices have one shape and were allocated in turn, so they are equally spaced.
void KernelSink::project_heads(std::span<const Matrix> heads, const std::byte* x, int64_t x_stride,
                               RowRuns runs, float* y) {
  const Matrix& matrix = heads.front();
  const int64_t count = std::ssize(heads);
  const int64_t apart = count == 1 ? 0 : heads[1].data() - heads[0].data();
  products({x, rows_of(runs), y}, runs,
           {.inputs = matrix.inputs(),
            .columns = matrix.outputs(),
            .y_stride = count * matrix.outputs(),
            .x_stride = x_stride,
            .batch = count,
            .x_step = matrix.inputs(),
            .weights_step = apart / dtype_bytes(parts_.dtype),
            .y_step = matrix.outputs(),
            .weights = matrix.data()});
}

void KernelSink::mix_experts(const ExpertLayerWeights& layer, const std::byte* router_input,
                             RowRuns runs) {
  ExpertKernels(parts_, scratch_.packed, tag_, *this).run(layer, router_input, runs);
}

}  // namespace fasa
