// Float functions for kernel bodies: the accurate ones, on host and device.
#pragma once

#include "kernels/cuda/simt.h"
#if !defined(__CUDACC__)
#include <cmath>
#endif

namespace fasa::cuda {

#if defined(__CUDACC__)
FASA_DEVICE float exponential(float value) { return expf(value); }
// 2^value to 2 ulp, in one instruction; results below the normal range are 0.
FASA_DEVICE float power_of_2(float value) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
  return power;
}
// The other number if one is NaN.
FASA_DEVICE float maximum(float a, float b) { return fmaxf(a, b); }
FASA_DEVICE float logarithm(float value) { return logf(value); }
FASA_DEVICE float logarithm_of_1_plus(float value) { return log1pf(value); }
FASA_DEVICE float cosine(float value) { return cosf(value); }
FASA_DEVICE float sine(float value) { return sinf(value); }
FASA_DEVICE float error_function(float value) { return erff(value); }
FASA_DEVICE float hyperbolic_tangent(float value) { return tanhf(value); }
#else
FASA_DEVICE float exponential(float value) { return std::exp(value); }
FASA_DEVICE float power_of_2(float value) { return std::exp2(value); }
FASA_DEVICE float maximum(float a, float b) { return std::fmax(a, b); }
FASA_DEVICE float logarithm(float value) { return std::log(value); }
FASA_DEVICE float logarithm_of_1_plus(float value) { return std::log1p(value); }
FASA_DEVICE float cosine(float value) { return std::cos(value); }
FASA_DEVICE float sine(float value) { return std::sin(value); }
FASA_DEVICE float error_function(float value) { return std::erf(value); }
FASA_DEVICE float hyperbolic_tangent(float value) { return std::tanh(value); }
#endif

// 0 = no cap.
FASA_DEVICE float soft_capped(float score, float cap) {
  return cap > 0 ? hyperbolic_tangent(score / cap) * cap : score;
}

}  // namespace fasa::cuda
