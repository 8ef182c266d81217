// Candidates and ranked keys one by one, for targets without a compress instruction; included into
// an anonymous namespace.

static void append_one_by_one(const float* scores, uint64_t mask, int32_t position,
                              Candidates* candidates) {
  for (; mask != 0; mask &= mask - 1) {
    const int token = __builtin_ctzll(mask);
    const int32_t at = candidates->count++;
    candidates->positions[at] = position + token;
    for (int h = 0; h < candidates->heads; ++h) {
      candidates->raw[static_cast<int64_t>(h) * candidates->capacity + at] = scores[h * 64 + token];
    }
  }
}

static int32_t find_one_by_one(const int32_t* keys, int32_t begin, int32_t end, int32_t bound,
                               int32_t* found, int32_t* places) {
  int32_t count = 0;
  for (int32_t i = begin; i < end; ++i) {  // unconditional store: no branch
    found[count] = keys[i];
    places[count] = i;
    count += keys[i] >= bound ? 1 : 0;
  }
  return count;
}
