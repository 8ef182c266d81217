// What lies between projections: norms, activations, residuals; f32 inside, rounded once to the
// model's dtype where a projection reads the result. Each works on one row.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/base/dtype.h"

namespace fasa {

// out = x / sqrt(mean(x²) + eps) * weight.
void rms_norm(const float* x, const float* weight, float eps, int64_t size, DType dtype, void* out);
// In place, f32.
void rms_norm(float* x, const float* weight, float eps, int64_t size);
// sum += addend + bias; `bias` may be null.
void add_row(const float* addend, const float* bias, int64_t size, float* sum);
// out = silu(gate) * up, of gate_up [2 x size]; `bias` [2 x size] may be null.
void silu_gate(const float* gate_up, const float* bias, int64_t size, DType dtype, void* out);
void store_row(const float* x, int64_t size, DType dtype, void* out);

// Calls `body` for each row, on several threads where rows x `row_work` is worth it.
void for_each_row(int64_t rows, int64_t row_work, const std::function<void(int64_t)>& body);

}  // namespace fasa
