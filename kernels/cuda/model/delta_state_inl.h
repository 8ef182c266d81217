// What the gated delta net's kernels share: where a value head's state, inputs and gates are.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/math_inl.h"
#include "kernels/linear_params.h"

namespace fasa::cuda {

// Four neighbouring columns of a matrix.
struct alignas(16) Quad {
  float of[4] = {};

  FASA_DEVICE static Quad load(const float* from) { return *reinterpret_cast<const Quad*>(from); }
  FASA_DEVICE void store(float* to) const { *reinterpret_cast<Quad*>(to) = *this; }
  FASA_DEVICE void add(float factor, const Quad& x) {
    FASA_UNROLL for (int i = 0; i < 4; ++i) of[i] = simt::fused(factor, x.of[i], of[i]);
  }
  FASA_DEVICE Quad times(float factor) const {
    Quad product;
    FASA_UNROLL for (int i = 0; i < 4; ++i) product.of[i] = factor * of[i];
    return product;
  }
};

struct DeltaGates {
  float beta = 0;
  float decay = 0;  // its logarithm
};

struct DeltaState {
  // As in transformers, whatever the config says.
  static constexpr float kUnitEps = 1e-6f;

  DeltaNetParams params;
  LinearLayout layout;

  FASA_DEVICE const LinearShape& shape() const { return layout.shape(); }
  FASA_DEVICE int64_t width() const { return layout.value_stride(); }
  FASA_DEVICE const LinearPart& part(int index) const { return params.parts.data()[index]; }
  FASA_DEVICE std::byte* memory(const LinearPart& of) const {
    return of.state + params.layer * layout.layer_bytes();
  }
  FASA_DEVICE float* matrix(const LinearPart& of, int head) const {
    return reinterpret_cast<float*>(memory(of)) + head * layout.head_elements();
  }
  FASA_DEVICE float* saved_matrix(const LinearPart& of, int head) const {
    return reinterpret_cast<float*>(of.saved + params.layer * layout.cut_bytes()) +
           head * layout.head_elements();
  }
  FASA_DEVICE DeltaGates gates(const float* of_token, int head) const {
    const float b = of_token[head];
    const float a = of_token[shape().value_heads + head] + params.bias[head];
    const float softplus = a > 20 ? a : logarithm_of_1_plus(exponential(a));
    return {1 / (1 + exponential(-b)), params.factor[head] * softplus};
  }
  FASA_DEVICE float unit_scale(float squares) const {
    return 1 / simt::square_root(squares + kUnitEps);
  }
  FASA_DEVICE float query_scale() const {
    return 1 / simt::square_root(static_cast<float>(shape().key_dim));
  }

  // Inputs of a token, from the step or from the open block.
  struct Token {
    const void* keys;  // its key and value are at these elements
    int64_t key;
    const void* values;
    int64_t value;
    const float* gates;
    int64_t query;  // in params.y; of the step's tokens alone
  };
  FASA_DEVICE Token token(int64_t row, int head) const {
    const int64_t begin = row * shape().channels();
    const int64_t key = int64_t{shape().key_head(head)} * shape().key_dim;
    return {params.y,
            begin + shape().key_width() + key,
            params.y,
            begin + 2 * shape().key_width() + int64_t{head} * shape().value_dim,
            params.gates + row * 2 * shape().value_heads,
            begin + key};
  }
  FASA_DEVICE Token kept_token(const LinearPart& of, int64_t index, int head) const {
    std::byte* const from = memory(of);
    return {from + layout.keys(),
            index * shape().key_width() + int64_t{shape().key_head(head)} * shape().key_dim,
            from + layout.values(),
            index * shape().value_width() + int64_t{head} * shape().value_dim,
            reinterpret_cast<const float*>(from + layout.gates()) + index * 2 * shape().value_heads,
            0};
  }
  FASA_DEVICE float value(const Token& of, int64_t column) const {
    return column < shape().value_dim ? load(shape().dtype, of.values, of.value + column) : 0;
  }
  FASA_DEVICE Quad values(const Token& of, int64_t column) const {
    Quad quad;
    FASA_UNROLL for (int i = 0; i < 4; ++i) quad.of[i] = value(of, column + i);
    return quad;
  }
  // o of the step's row, before the norm.
  FASA_DEVICE void put(int64_t row, int head, int64_t column, const Quad& o) const {
    const int64_t dim = shape().value_dim;
    float* const to = params.o + row * params.z_stride + head * dim;
    FASA_UNROLL for (int i = 0; i < 4; ++i) {
      if (column + i < dim) to[column + i] = o.of[i];
    }
  }
};

}  // namespace fasa::cuda
