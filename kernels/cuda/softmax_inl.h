// The merge rule of kernels/softmax_state.h for kernel bodies, one element a thread.
#pragma once

#include "kernels/cuda/math_inl.h"
#include "kernels/cuda/simt.h"

namespace fasa::cuda {

inline constexpr int kStateHeader = 2;  // floats before the values: maximum, sum

FASA_DEVICE float no_maximum() { return -__builtin_inff(); }

// state = state ∪ partial, given both maxima.
struct SoftmaxMerge {
  enum class Kind : uint8_t { kKeep, kTake, kAdd } kind;
  float top;
  float mine;    // weight of the state
  float theirs;  // weight of the partial

  FASA_DEVICE static SoftmaxMerge of(float state, float partial) {
    if (partial == no_maximum()) return {Kind::kKeep, state, 1, 0};
    if (state == no_maximum()) return {Kind::kTake, partial, 0, 1};
    const float top = state < partial ? partial : state;
    return {Kind::kAdd, top, exponential(state - top), exponential(partial - top)};
  }
  FASA_DEVICE float operator()(float state, float partial) const {
    if (kind == Kind::kKeep) return state;
    if (kind == Kind::kTake) return partial;
    return state * mine + partial * theirs;
  }
};

// A softmax over nothing gives 0, with log-sum-exp -inf.
FASA_DEVICE float divisor_of(float maximum, float sum) {
  return maximum == no_maximum() ? 1.0f : sum;
}
FASA_DEVICE float log_sum_exp(float maximum, float sum) {
  return maximum == no_maximum() ? maximum : maximum + logarithm(sum);
}

}  // namespace fasa::cuda
