// Survivors one by one, for targets without a compress instruction; included into an anonymous
// namespace.

static void append_one_by_one(const float* scores, uint64_t mask, int32_t position,
                              Survivors* survivors) {
  for (; mask != 0; mask &= mask - 1) {
    const int token = __builtin_ctzll(mask);
    const int32_t at = survivors->count++;
    survivors->positions[at] = position + token;
    for (int h = 0; h < survivors->heads; ++h) {
      survivors->raw[static_cast<int64_t>(h) * survivors->capacity + at] = scores[h * 64 + token];
    }
  }
}
