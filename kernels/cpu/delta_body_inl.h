// The bodies of delta_body_types.h, for a vector header (row_math_inl.h).
#pragma once

#include "kernels/cpu/rows/row_math_inl.h"
#include "kernels/delta_body_types.h"

namespace fasa::cpu {
namespace {

// kRows rows of a product, kVectors registers of columns.
template <int kRows, int kVectors>
void multiply_tile(const DeltaProduct& task, int64_t row, int64_t column) {
  const float* const a = task.a + row * task.a_stride;
  const float* const b = task.b + column;
  float* const out = task.out + row * task.out_stride + column;
  Vec sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = task.scale == 0
                       ? Vec{}
                       : load(out + r * task.out_stride + v * kLanes) * splat(task.scale);
    }
  }
  for (int64_t i = 0; i < task.depth; ++i) {
    Vec of_b[kVectors];
    for (int v = 0; v < kVectors; ++v) of_b[v] = load(b + i * task.b_stride + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Vec of_a = splat(a[r * task.a_stride + i]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(of_a, of_b[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) store(out + r * task.out_stride + v * kLanes, sums[r][v]);
  }
}

template <int kVectors>
void multiply_columns(const DeltaProduct& task, int64_t column) {
  constexpr int kRows = 4;
  int64_t row = 0;
  for (; row + kRows <= task.rows; row += kRows) multiply_tile<kRows, kVectors>(task, row, column);
  for (; row < task.rows; ++row) multiply_tile<1, kVectors>(task, row, column);
}

void multiply(const DeltaProduct& task) {
  constexpr int kVectors = kLanes >= 16 ? 4 : 2;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= task.columns; column += kVectors * kLanes) {
    multiply_columns<kVectors>(task, column);
  }
  for (; column < task.columns; column += kLanes) multiply_columns<1>(task, column);
}

// kVectors registers of columns, whose part of the state stays in the first-level cache.
template <int kVectors>
void step_columns(const DeltaStep& task, int64_t column) {
  float* const state = task.state + column;
  Vec read[kVectors] = {}, sums[kVectors] = {};
  for (int64_t i = 0; i < task.key_dim; ++i) {
    const Vec k = splat(task.k[i]);
    for (int v = 0; v < kVectors; ++v) {
      read[v] = fma(k, load(state + i * task.columns + v * kLanes), read[v]);
    }
  }
  const Vec decay = splat(task.decay);
  Vec delta[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    delta[v] = splat(task.beta) * (load(task.v + column + v * kLanes) - decay * read[v]);
  }
  for (int64_t i = 0; i < task.key_dim; ++i) {
    const Vec k = splat(task.k[i]), q = splat(task.q[i]);
    for (int v = 0; v < kVectors; ++v) {
      float* const at = state + i * task.columns + v * kLanes;
      const Vec next = fma(k, delta[v], decay * load(at));
      store(at, next);
      sums[v] = fma(q, next, sums[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) store(task.out + column + v * kLanes, sums[v]);
}

void step(const DeltaStep& task) {
  constexpr int kVectors = 4;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= task.columns; column += kVectors * kLanes) {
    step_columns<kVectors>(task, column);
  }
  for (; column < task.columns; column += kLanes) step_columns<1>(task, column);
}

constexpr DeltaBodies kDeltaBodies = {multiply, step};

}  // namespace
}  // namespace fasa::cpu
