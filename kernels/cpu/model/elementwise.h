// Work between projections: norms, activations, residuals; computed in f32 and rounded once to the
// model's dtype if a projection reads the result. Each function handles one row.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/model_params.h"
#include "runtime/base/dtype.h"

namespace fasa {

using Norm = NormParams;  // none(): out = x

// kRms: out = x / sqrt(mean(x²) + eps) * weight; kLayer: the same of x - mean(x). Then + bias.
void normalise(const float* x, const Norm& norm, int64_t size, DType dtype, void* out);
// The same in place, in f32.
void normalise(float* x, const Norm& norm, int64_t size);
// sum += addend + bias; `bias` may be null.
void add_row(const float* addend, const float* bias, int64_t size, float* sum);
// Adds a projection's result to the residual: sum += scale * norm(addend + bias).
struct Joining {
  const float* bias = nullptr;
  Norm norm = {};
  float scale = 1;
};
void join_row(const float* addend, const Joining& how, int64_t size, float* sum);
// sum += bias.
void add_bias(const float* bias, int64_t size, float* sum);
// out = f(x + bias); `bias` may be null. kGelu is exact, kGeluTanh its approximation by tanh.
void activate(Activation f, const float* x, const float* bias, int64_t size, DType dtype,
              void* out);
// out = f(x) * up.
void activate_up(Activation f, const float* x, const float* up, int64_t size, DType dtype,
                 void* out);
// out = f(gate) * up, of gate_up [2 x size]; `bias` [2 x size] may be null.
void activate_gate(Activation f, const float* gate_up, const float* bias, int64_t size, DType dtype,
                   void* out);
// gpt-oss' gate: out = g·sigmoid(alpha·g) * (u + 1), where g = min(gate, limit) and u = up within
// ±limit. gate_up [2 x size], interleaved [size x 2]; `bias` alike, or null.
void activate_clamped(const ClampedGate& how, bool interleaved, const float* gate_up,
                      const float* bias, int64_t size, DType dtype, void* out);
void store_row(const float* x, int64_t size, DType dtype, void* out);
// x *= factor, x [size] of `dtype`.
void scale_row(float factor, int64_t size, DType dtype, void* x);

// Calls `body` for each row, on several threads if rows x `row_work` is large enough.
void for_each_row(int64_t rows, int64_t row_work, const std::function<void(int64_t)>& body);

}  // namespace fasa
