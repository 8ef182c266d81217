// Scalar oracle of the gated delta net's kernels: token by token, in double precision.
#pragma once

#include <vector>

#include "runtime/base/linear_shape.h"

namespace fasa::reference {

// One layer of one sequence.
class DeltaNet {
 public:
  struct Weights {
    std::vector<float> taps;    // [channels, taps]
    std::vector<float> factor;  // [value_heads], negative
    std::vector<float> bias;    // [value_heads]
    std::vector<float> norm;    // [value_dim]
    float eps = 1e-6f;
  };
  DeltaNet(const LinearShape& shape, Weights weights);

  // x [channels], gates [2 x value_heads] (b, then a), z [value_width] -> out [value_width].
  std::vector<double> next(const float* x, const float* gates, const float* z);
  const std::vector<double>& state() const { return state_; }  // [value_heads, key_dim, value_dim]

 private:
  std::vector<double> convolve(const float* x);
  void head(int head, const std::vector<double>& y, const float* gates, double* out);

  LinearShape shape_;
  Weights weights_;
  std::vector<std::vector<double>> inputs_;  // the last taps - 1
  std::vector<double> state_;
};

}  // namespace fasa::reference
