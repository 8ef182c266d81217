// The running softmax of one query head, and its one merge rule.
//
// For a set A of tokens with scores s_t and values v_t:
//     m(A) = max s_t      l(A) = Σ exp(s_t - m(A))      a(A) = Σ exp(s_t - m(A)) v_t
// so that attention over A is a/l and its log-sum-exp m + ln l. For disjoint A, B and
// M = max(m(A), m(B)):
//     l(A ∪ B) = Σ_A exp(s - M) + Σ_B exp(s - M) = exp(m(A) - M) l(A) + exp(m(B) - M) l(B),
// because exp(s - M) = exp(m(A) - M) exp(s - m(A)); a(A ∪ B) likewise. The rule is associative only
// in exact arithmetic: in f32 the order counts, so tiles are merged in tile order.
//
// A set without tokens, or with scores that are all -inf, is (−inf, 0, 0): merging it changes
// nothing, and -inf - -inf is never computed.
//
// Layout, of partials and states alike: f32 [2 + value_dim]: m, l, a. No standard headers here and
// internal linkage only: files compiled for one instruction set include this.
#pragma once

namespace fasa {

inline constexpr int kSoftmaxHeader = 2;  // floats before the values

static inline float minus_infinity() { return -__builtin_inff(); }

static inline void clear_softmax(float* state, int value_dim) {
  state[0] = minus_infinity();
  for (int i = 1; i < kSoftmaxHeader + value_dim; ++i) state[i] = 0;
}

// state = state ∪ partial. `exp`: float -> float for arguments <= 0, exp(0) == 1.
template <typename Exp>
static inline void merge_softmax(float* __restrict state, const float* __restrict partial,
                                 int value_dim, Exp exp) {
  if (partial[0] == minus_infinity()) return;
  if (state[0] == minus_infinity()) {
    for (int i = 0; i < kSoftmaxHeader + value_dim; ++i) state[i] = partial[i];
    return;
  }
  const float top = state[0] < partial[0] ? partial[0] : state[0];
  const float mine = exp(state[0] - top);
  const float theirs = exp(partial[0] - top);
  state[0] = top;
  for (int i = 1; i < kSoftmaxHeader + value_dim; ++i) {
    state[i] = state[i] * mine + partial[i] * theirs;
  }
}

}  // namespace fasa
