// cap * tanh(score / cap), for registers of floats and for one float. Included into the anonymous
// namespace of files compiled for one instruction set: templates alone (target.h).
#pragma once

// Within 6 ulp, by Eigen's quotient of polynomials, up to where f32 rounds it to 1. NaN stays NaN.
template <class F>
static inline F tanh_of(F x) {
  const F most = F{} + 7.90531110763549805f;
  x = x > most ? most : x;  // NaN is not
  x = x < -most ? -most : x;
  const F square = x * x;
  F p = F{} - 2.76076847742355e-16f;
  p = p * square + 2.00018790482477e-13f;
  p = p * square - 8.60467152213735e-11f;
  p = p * square + 5.12229709037114e-08f;
  p = p * square + 1.48572235717979e-05f;
  p = p * square + 6.37261928875436e-04f;
  p = p * square + 4.89352455891786e-03f;
  F q = F{} + 1.19825839466702e-06f;
  q = q * square + 1.18534705686654e-04f;
  q = q * square + 2.26843463243900e-03f;
  q = q * square + 4.89352518554385e-03f;
  return x * p / q;
}

template <class F>
static inline F soft_capped(F score, float cap) {
  return tanh_of<F>(score / cap) * cap;
}
