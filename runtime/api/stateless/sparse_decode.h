// The stateless API: attention of one decode step over plain tensors. It keeps no cache: every call
// reads all keys to index them, so it costs more than attending to all of them. It serves callers
// that keep their own cache, and comparisons.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "offload/device.h"
#include "runtime/base/dtype.h"
#include "runtime/base/geometry.h"
#include "runtime/base/tensor_view.h"
#include "runtime/config/config.h"

namespace fasa {

// A caller's tensor [batch, heads, tokens, dim]. Strides are in elements; that of dim is 1.
struct BatchTensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t tokens = 0;
  int64_t dim = 0;
  int64_t batch_stride = 0;
  int64_t head_stride = 0;
  int64_t token_stride = 0;

  // A contiguous [batch, heads, tokens, dim].
  static BatchTensorView dense(const void* data, DType dtype, int64_t batch, int64_t heads,
                               int64_t tokens, int64_t dim) {
    return {data, dtype, batch, heads, tokens, dim, heads * tokens * dim, tokens * dim, dim};
  }
  // Tokens [first, first + count) of one entry, as the other APIs take them.
  ConstTensorView tokens_of(int64_t entry, int64_t first, int64_t count) const {
    const int64_t at = entry * batch_stride + first * token_stride;
    return {static_cast<const std::byte*>(data) + at * dtype_bytes(dtype),
            dtype,
            count,
            heads,
            dim,
            token_stride,
            head_stride};
  }
};

struct SparseDecode {
  int layer = 0;      // layer whose settings and chunks apply
  ConstTensorView q;  // [batch, query_heads, key_dim], rotated: the newest token of every entry
  BatchTensorView k;  // [batch, kv_heads, tokens, key_dim], rotated, the newest token included
  BatchTensorView v;  // [batch, kv_heads, tokens, value_dim]
  std::span<const int64_t> lengths = {};  // tokens of every entry; empty: all of k's
  TensorView out;                         // [batch, query_heads, value_dim]
  float* lse = nullptr;                   // [batch, query_heads] natural log, or null
};

// Attends each entry's query to the tokens that the config selects. The result has the bits that a
// Runtime gives for a sequence of these tokens when it decodes the newest. `slice_dims`: of all
// layers, as for Runtime. Tensors are in device memory; the call allocates the rows and slices of
// one entry there. Done on return. Throws UsageError for shapes that do not fit, BudgetError.
void sparse_decode(Device& device, const Config& config, const Geometry& geometry,
                   RowDType row_dtype, const std::vector<int16_t>& slice_dims,
                   const SparseDecode& call, StreamView stream);

}  // namespace fasa
