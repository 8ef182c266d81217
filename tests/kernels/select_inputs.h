// Difficult inputs for selections; for every device's kernel.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/kernels/select_case.h"

namespace fasa {

inline constexpr std::array kSelectDTypes = {SliceDType::kF32, SliceDType::kBF16, SliceDType::kInt8,
                                             SliceDType::kInt4, SliceDType::kInt2};

// Keys whose maxima the sample misses: one page above all, rising scores, a sawtooth, heads that
// differ.
inline std::vector<SelectCase::KeyOf> misleading_keys() {
  return {
      [](int, int, int t, int d) {
        return t / 64 == 20 ? 50.0f + static_cast<float>((t * 7 + d) % 13) : 0.1f;
      },
      [](int, int, int t, int d) { return static_cast<float>(t) * 0.01f + static_cast<float>(d); },
      [](int, int, int t, int) { return -static_cast<float>(t % 4096) * 0.02f; },
      [](int, int, int t, int d) {
        return t == 1500 + d ? 1000.0f : static_cast<float>((t * 31 + d * 17) % 101) * 0.01f;
      },
  };
}

// One dimension is NaN at 50 of every hundred tokens, and infinite (both signs) at 77 and 78.
inline SelectCase::KeyOf odd_keys() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return [gaussian = gaussian_keys(5)](int s, int h, int t, int d) {
    const float value = gaussian(s, h, t, d);
    if (d != 1) return value;
    if (t % 100 == 50) return std::numeric_limits<float>::quiet_NaN();
    return t == 77 ? kInfinity : t == 78 ? -kInfinity : value;
  };
}

// Fills the sealed pages of a one-head case with random codes and zeros, and every scale with
// `base`.
inline void fill_with_codes(SelectCase& cache, int tokens, float base, std::mt19937& random) {
  const CacheLayout& layout = cache.layout();
  for (int p = 0; p < (tokens - 1) / kPageTokens; ++p) {
    std::byte* page = cache.block(0, p) + layout.slice_offset(0, 0);
    std::memcpy(cache.block(0, p), &base, 4);
    for (int64_t i = 0; i < layout.slice.code_bytes(); ++i) {
      page[i] = static_cast<std::byte>(random() & 0xff);
    }
    for (int d = 0; d < layout.slice.dims; ++d) {
      const auto zero = static_cast<uint16_t>((random() % 8) << 6);
      std::memcpy(page + layout.slice.code_bytes() + d * 2, &zero, 2);
    }
  }
}

// The set when all scores tie: the first `count` tokens and the recent sixteen.
inline std::vector<int32_t> first_and_recent(int count, int tokens) {
  std::vector<int32_t> set(static_cast<size_t>(count + 16));
  std::iota(set.begin(), set.begin() + count, 0);
  std::iota(set.begin() + count, set.end(), tokens - 16);
  return set;
}

// Two query heads of eight dimensions, element d - 3 h, with gaps between heads.
class StridedQueries {
 public:
  static float value(int head, int d) { return static_cast<float>(d - 3 * head); }

  explicit StridedQueries(DType dtype)
      : dtype_(dtype), bytes_(static_cast<size_t>(40 * dtype_bytes(dtype)), std::byte{0x11}) {
    for (int h = 0; h < 2; ++h) {
      for (int d = 0; d < 8; ++d) store_element(dtype, bytes_.data(), h * 20 + d, value(h, d));
    }
  }
  ConstTensorView view() const { return {bytes_.data(), dtype_, 1, 2, 8, 40, 20}; }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

// A select split by KV heads into two calls: each call writes its own heads only, and together they
// give the result of one call.
template <typename Run>
void expect_same_in_parts(SelectCase& cache, SelectParams params, const Run& run) {
  const int kv_heads = params.step.layout.kv_heads;
  const auto sets = [&] {
    std::vector<std::vector<int32_t>> all;
    for (int i = 0; i < params.step.count * kv_heads; ++i) {
      all.push_back(cache.set_of(i / kv_heads, i % kv_heads));
    }
    return all;
  };
  run(params);
  const auto expected = sets();
  for (int first = 1; first < kv_heads; ++first) {
    cache.forget_sets();
    params.step.heads = {0, first};
    run(params);
    for (int i = 0; i < params.step.count * kv_heads; ++i) {
      EXPECT_EQ(cache.sizes()[static_cast<size_t>(i)] >= 0, i % kv_heads < first) << "head " << i;
    }
    params.step.heads = {first, kv_heads};
    run(params);
    EXPECT_EQ(sets(), expected) << first << " heads first";
  }
}

}  // namespace fasa
