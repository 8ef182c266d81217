// Conversions between the C structs and the runtime's types.
#pragma once

#include <memory>
#include <vector>

#include "bindings/c/fasa.h"
#include "bindings/c/handles.h"
#include "runtime/fasa.hpp"

namespace fasa::c {

// Expects [tokens, heads, dim]. Throws UsageError that names the tensor; also for memory that the
// device's kernels cannot reach.
TensorView view_of(Device& device, const fasa_tensor* tensor, const char* name);
BatchTensorView batch_view_of(Device& device, const fasa_tensor* tensor, const char* name);
// Memory for log-sum-exp results, or null.
float* sums_at(Device& device, float* lse);
DType dtype_of(fasa_dtype dtype, const char* name);

// The caller's stream, or `own`. Throws UsageError for a stream of another device.
StreamView stream_of(const fasa_stream* stream, const std::shared_ptr<Device>& device,
                     const Stream& own);

std::shared_ptr<Device> open_shared(const Config& config);

// fasa_options, read and checked.
struct Opening {
  std::shared_ptr<Device> device;
  Config config;
  Geometry geometry;  // of the owned part
  RowDType row_dtype;
  std::vector<int16_t> slice_dims;  // of the owned part
  int64_t max_context;
};
Opening opening_of(const fasa_options* options);

void give_memory(const KvMemory& memory, fasa_kv_memory* result);
// `layer` -1: all.
void give_metrics(const FetchMetrics& metrics, int layer, fasa_metrics* result);

}  // namespace fasa::c
