// The top-k of calibration against a full sort, ties and infinities included.
#include "runtime/calibrate/calibrate_top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace fasa {
namespace {

using cpu::kNoScore;

std::vector<uint8_t> sorted_set(const std::vector<int32_t>& deficits, int64_t k) {
  std::vector<size_t> order(deficits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return deficits[a] < deficits[b]; });
  std::vector<uint8_t> set(deficits.size());
  const auto count = static_cast<size_t>(std::clamp<int64_t>(k, 0, std::ssize(deficits)));
  for (size_t i = 0; i < count; ++i) set[order[i]] = 1;
  return set;
}

// Runs with every instruction set; each selector has been used for other scores before.
class TopK : public ::testing::Test {
 protected:
  TopK() {
    for (const cpu::Target target : cpu::supported_targets()) {
      selectors_.emplace_back(cpu::rank_bodies(target));
    }
  }
  void expect_same(const std::vector<int32_t>& deficits, int64_t k) {
    std::vector<float> weights(deficits.size());
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 31 + 1);
    const std::vector<uint8_t> expected = sorted_set(deficits, k);
    double sum = 0;  // of small whole numbers: exact in floats, whatever the order
    for (size_t i = 0; i < weights.size(); ++i) sum += expected[i] ? double{weights[i]} : 0.0;
    for (TopKSelector& selector : selectors_) {
      selector.select(deficits, k);
      std::vector<uint8_t> marked(deficits.size(), 7);
      selector.mark(marked);
      EXPECT_EQ(marked, expected) << deficits.size() << " tokens, k = " << k;
      EXPECT_EQ(selector.sum(weights), sum) << deficits.size() << " tokens, k = " << k;
    }
  }

 private:
  std::vector<TopKSelector> selectors_;
};

int32_t deficit_of(float value) { return std::bit_cast<int32_t>(value); }

TEST_F(TopK, EqualsAFullSort) {
  std::mt19937 random(1);
  for (const size_t count : {0u, 1u, 2u, 15u, 16u, 17u, 100u, 1023u, 4000u}) {
    for (const int levels : {1, 3, 20, 1000000}) {
      std::vector<int32_t> deficits(count);
      for (int32_t& deficit : deficits) {
        deficit = deficit_of(static_cast<float>(random() % static_cast<unsigned>(levels)) * 0.37f);
        if (random() % 10 == 0) deficit = kNoScore;
      }
      for (const int64_t k :
           {int64_t{-3}, int64_t{0}, int64_t{1}, int64_t{7}, std::ssize(deficits) / 2,
            std::ssize(deficits) - 1, std::ssize(deficits), std::ssize(deficits) + 9}) {
        expect_same(deficits, k);
      }
    }
  }
}

// A search starts from the last one's result: here far off, with a density that does not apply.
TEST_F(TopK, GoesFromAnyScaleToAnyOther) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 200; ++round) {
    const float scale = std::ldexp(1.0f, static_cast<int>(random() % 200) - 100);
    std::vector<int32_t> deficits(1 + random() % 3000);
    for (int32_t& deficit : deficits) deficit = deficit_of(std::abs(normal(random)) * scale);
    expect_same(deficits, static_cast<int64_t>(random() % deficits.size()));
  }
}

TEST_F(TopK, ZeroDenormalsAndTheLargestAreInOrder) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  std::vector<int32_t> deficits;
  for (const float value : {tiny, 0.0f, 0.0f, 2 * tiny, 0.0f, 1e38f, 3.4e38f}) {
    deficits.push_back(deficit_of(value));
  }
  deficits.push_back(kNoScore);
  for (int64_t k = 0; k <= 8; ++k) expect_same(deficits, k);
}

}  // namespace
}  // namespace fasa
