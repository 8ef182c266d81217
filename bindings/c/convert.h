// Between the C structs and the runtime's own.
#pragma once

#include <memory>
#include <vector>

#include "bindings/c/fasa.h"
#include "bindings/c/handles.h"
#include "runtime/fasa.hpp"

namespace fasa::c {

// [tokens, heads, dim]. Throw UsageError naming the tensor, for memory too that the device's kernels
// do not reach.
TensorView view_of(Device& device, const fasa_tensor* tensor, const char* name);
BatchTensorView batch_view_of(Device& device, const fasa_tensor* tensor, const char* name);
// A log-sum-exp's memory, or null.
float* sums_at(Device& device, float* lse);
DType dtype_of(fasa_dtype dtype, const char* name);

// The caller's stream, or `own`. Throws UsageError for one of another device.
StreamView stream_of(const fasa_stream* stream, const std::shared_ptr<Device>& device,
                     const Stream& own);

std::shared_ptr<Device> open_shared(const Config& config);

// Options that open an API: fasa_options, read and checked.
struct Opening {
  std::shared_ptr<Device> device;
  Config config;
  Geometry geometry;  // of the part
  RowDType row_dtype;
  std::vector<int16_t> slice_dims;  // of the part
  int64_t max_context;
};
Opening opening_of(const fasa_options* options);

void give_memory(const KvMemory& memory, fasa_kv_memory* result);
// `layer` -1: all.
void give_metrics(const FetchMetrics& metrics, int layer, fasa_metrics* result);

}  // namespace fasa::c
