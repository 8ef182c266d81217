// Four vectors of four lanes to one value each, for the x86 targets; included into an anonymous
// namespace.

// step = largest / limit and its inverse for four heads; false if a score could overflow.
static inline bool steps_of_folded(__m128 a, __m128 b, __m128 c, __m128 d, float limit, float* step,
                                   float* inverse) {
  _MM_TRANSPOSE4_PS(a, b, c, d);
  const __m128 largest = _mm_max_ps(_mm_max_ps(a, b), _mm_max_ps(c, d));
  const __m128 safe = _mm_max_ps(largest, _mm_set1_ps(1e-30f));
  const __m128 limits = _mm_set1_ps(limit);
  _mm_store_ps(step, _mm_div_ps(safe, limits));
  _mm_store_ps(inverse, _mm_div_ps(limits, safe));
  return _mm_movemask_ps(_mm_cmple_ps(largest, _mm_set1_ps(1e30f))) == 0xf;
}

static inline bool sums_of_folded(__m128 a, __m128 b, __m128 c, __m128 d, float* offset) {
  _MM_TRANSPOSE4_PS(a, b, c, d);
  const __m128 sum = _mm_add_ps(_mm_add_ps(a, b), _mm_add_ps(c, d));
  _mm_store_ps(offset, sum);
  const __m128 size = _mm_andnot_ps(_mm_set1_ps(-0.0f), sum);
  return _mm_movemask_ps(_mm_cmple_ps(size, _mm_set1_ps(1e37f))) == 0xf;
}
