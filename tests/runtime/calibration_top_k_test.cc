// The top-k of calibration against a full sort, ties and infinities included.
#include "runtime/calibrate_top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace fasa {
namespace {

std::vector<uint8_t> sorted_set(const std::vector<float>& scores, int64_t k) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<uint8_t> set(scores.size());
  const auto count = static_cast<size_t>(std::clamp<int64_t>(k, 0, std::ssize(scores)));
  for (size_t i = 0; i < count; ++i) set[order[i]] = 1;
  return set;
}

void expect_same(const std::vector<float>& scores, int64_t k, TopKSelector& selector) {
  std::vector<float> weights(scores.size());
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 31 + 1);
  const std::vector<uint8_t> expected = sorted_set(scores, k);
  double sum = 0;  // of small whole numbers: exact in floats, whatever the order
  for (size_t i = 0; i < weights.size(); ++i) sum += expected[i] ? double{weights[i]} : 0.0;
  selector.select(scores, k);
  std::vector<uint8_t> marked(scores.size(), 7);
  selector.mark(marked);
  EXPECT_EQ(marked, expected) << scores.size() << " scores, k = " << k;
  EXPECT_EQ(selector.sum(weights), sum) << scores.size() << " scores, k = " << k;
}

TEST(TopK, EqualsAFullSort) {
  std::mt19937 random(1);
  TopKSelector selector;
  for (const size_t count : {0u, 1u, 2u, 15u, 16u, 17u, 100u, 1023u}) {
    for (const int levels : {1, 3, 20, 1000000}) {
      std::vector<float> scores(count);
      for (float& score : scores) {
        score = -static_cast<float>(random() % static_cast<unsigned>(levels)) * 0.37f;
        if (random() % 10 == 0) score = -std::numeric_limits<float>::infinity();
      }
      for (const int64_t k :
           {int64_t{-3}, int64_t{0}, int64_t{1}, int64_t{7}, std::ssize(scores) / 2,
            std::ssize(scores) - 1, std::ssize(scores), std::ssize(scores) + 9}) {
        expect_same(scores, k, selector);
      }
    }
  }
}

TEST(TopK, BothZerosAndDenormalsAreInOrder) {
  TopKSelector selector;
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> scores = {-tiny, -0.0f, 0.0f, -2 * tiny, -0.0f, -1e38f};
  for (int64_t k = 0; k <= 6; ++k) expect_same(scores, k, selector);
}

}  // namespace
}  // namespace fasa
