// Ranking of relative scores as integers of the same order.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace fasa::cpu {

inline constexpr float kLowestScore = std::numeric_limits<float>::lowest();

inline float value_of_key(int32_t key) {
  return std::bit_cast<float>(key ^ ((key >> 31) & 0x7fffffff));
}
inline int32_t key_of_value(float value) {
  const int32_t bits = std::bit_cast<int32_t>(value);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

// A key between two keys that differ by more than one: the midpoint by value while that converges
// (few steps if keys span few binades), else the midpoint by key.
inline int64_t between(int64_t reached, int64_t missed, int step) {
  constexpr int kByValue = 16;
  const float low = value_of_key(static_cast<int32_t>(reached));
  if (step < kByValue && low >= kLowestScore) {
    const float middle = low / 2 + value_of_key(static_cast<int32_t>(missed)) / 2;
    const int64_t key = key_of_value(middle);
    if (reached < key && key < missed) return key;
  }
  return reached + (missed - reached) / 2;
}

// A key reached by at least `rank` entries and, if such a key exists, by at most `enough`; as many
// entries reach `least`. Keys are at most 0, because relative scores are never positive.
template <typename CountAtLeast>
int32_t key_of_rank(int32_t rank, int32_t enough, int32_t least,
                    const CountAtLeast& count_at_least) {
  int64_t reached = least;
  int64_t missed = 1;
  for (int step = 0; missed - reached > 1; ++step) {
    const int64_t middle = between(reached, missed, step);
    const int32_t count = count_at_least(static_cast<int32_t>(middle));
    if (count < rank) {
      missed = middle;
    } else {
      reached = middle;
      if (count <= enough) break;
    }
  }
  return static_cast<int32_t>(reached);
}

// The best entries by (key, lower position), queried in ascending positions: keys above `last`, and
// the first `ties` equal to it.
struct RankCut {
  int32_t last = 0;
  int32_t ties = 0;

  bool takes(int32_t key) { return key > last || (key == last && ties-- > 0); }
};

// A bound on a head's raw scores that keeps every key of at least `floor`: scores below it have
// lower keys. Computed in double and rounded, so it needs a step or two.
inline float bound_of_floor(int32_t floor, float maximum) {
  auto bound = static_cast<float>(double{value_of_key(floor - 1)} + double{maximum});
  if (!(bound > kLowestScore)) return kLowestScore;
  while (key_of_value(bound - maximum) >= floor) {
    bound = std::nextafter(bound, -std::numeric_limits<float>::infinity());
  }
  return bound;
}

}  // namespace fasa::cpu
