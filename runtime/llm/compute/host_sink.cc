#include "runtime/llm/compute/host_sink.h"

#include <cstring>

#include "kernels/cpu/model/cpu_isa.h"
#include "kernels/cpu/model/elementwise.h"
#include "kernels/cpu/model/linear_calls.h"
#include "kernels/cpu/model/row_calls.h"
#include "runtime/llm/compute/expert_work.h"

namespace fasa {

void HostSink::run(const RowCalls::Call& call) {
  work_.device_bytes += cpu::run_on_rows(call).device_bytes;
}

void HostSink::run_linear(const LinearCall& call) { work_.device_bytes += cpu::run_linear(call); }

void HostSink::project(const Matrix& matrix, const std::byte* x, RowRuns runs, int64_t columns,
                       float* y) {
  matrix.apply_first(x, runs, columns, y);
  work_.device_bytes += matrix.work_bytes(rows_of(runs), columns);
  work_.operations += matrix.operations(rows_of(runs), columns);
}

void HostSink::project_heads(std::span<const Matrix> heads, const std::byte* x, int64_t x_stride,
                             RowRuns runs, float* y) {
  const Matrix& matrix = heads.front();
  const auto row = static_cast<size_t>(matrix.inputs() * dtype_bytes(parts_.dtype));
  const int64_t step = x_stride * dtype_bytes(parts_.dtype);
  if (x_stride != matrix.inputs()) {
    std::byte* const dense = parts_.activations.head_input();
    for_each_row(rows_of(runs), matrix.inputs(), [&](int64_t token) {
      std::memcpy(dense + static_cast<size_t>(token) * row, x + token * step, row);
    });
    x = dense;
  }
  project(matrix, x, runs, matrix.outputs(), y);
}

void HostSink::mix_experts(const ExpertLayerWeights& layer, const std::byte* router_input,
                           RowRuns runs) {
  const ExpertWork::Bytes bytes =
      ExpertWork(parts_.config, parts_.activations, parts_.dtype, runs).run(layer, router_input);
  work_.operations += bytes.operations;
  if (layer.on_host) {
    work_.bytes_before_link = work_.device_bytes;  // experts are chosen later
    work_.h2d_bytes += bytes.routed;
    work_.device_bytes += bytes.other;
  } else {
    work_.device_bytes += bytes.routed + bytes.other;
  }
}

std::string host_projections_note() { return onednn_isa_note(); }

}  // namespace fasa
