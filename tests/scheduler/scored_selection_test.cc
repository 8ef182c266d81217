// Stateless selections against plain references in double precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tests/scheduler/selection_case.h"
#include "tests/support/tape.h"

namespace fasa::testing {
namespace {

using Set = std::vector<int32_t>;

constexpr int kTokens = 203;
constexpr int kBudget = 24;
constexpr int kSinks = 2;
constexpr int kRecent = 4;
constexpr int kDim = SelectionCase::kDim;
constexpr int kGroup = SelectionCase::kGroup;

SelectionCase noisy(uint64_t seed) {
  return SelectionCase(kTokens, [seed](uint64_t i) { return 3 * noise(seed * 1000003 + i); });
}

// The best tokens by score between sinks and recent tokens, ties to the lower position, plus sinks
// and recent tokens.
Set best(const std::vector<double>& scores) {
  Set order(scores.size() - kSinks - kRecent);
  std::iota(order.begin(), order.end(), kSinks);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  order.resize(kBudget - kSinks - kRecent);
  for (int i = 0; i < kSinks; ++i) order.push_back(i);
  for (size_t i = scores.size() - kRecent; i < scores.size(); ++i) {
    order.push_back(static_cast<int32_t>(i));
  }
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<double> softmax_of(std::vector<double> scores, double scale) {
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp((score - top) * scale);
  for (double& score : scores) score /= sum;
  return scores;
}

// scores[head of the head group][token] -> one score per token.
std::vector<double> joined(const std::vector<std::vector<double>>& scores) {
  std::vector<double> all(scores[0].size(), -1e300);
  for (const std::vector<double>& head : scores) {
    const double top = *std::max_element(head.begin(), head.end());
    for (size_t t = 0; t < all.size(); ++t) all[t] = std::max(all[t], head[t] - top);
  }
  return all;
}

std::vector<std::vector<double>> true_scores(const SelectionCase& data, int kv_head) {
  std::vector<std::vector<double>> scores(kGroup);
  for (int h = 0; h < kGroup; ++h) {
    for (int t = 0; t < kTokens; ++t) {
      scores[static_cast<size_t>(h)].push_back(data.dot(kTokens - 1, kv_head * kGroup + h, t));
    }
  }
  return scores;
}

TEST(ScoredSelection, OracleTakesTheBestOfTheJoinedScores) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SelectionCase data = noisy(seed);
    EXPECT_EQ(data.choose("oracle", 1), best(joined(true_scores(data, 1))));
  }
}

TEST(ScoredSelection, EqualScoresGoByPosition) {
  const SelectionCase data(kTokens, [](uint64_t) { return 1.0f; });
  Set expected(kBudget - kRecent);
  std::iota(expected.begin(), expected.end(), 0);
  for (int i = kTokens - kRecent; i < kTokens; ++i) expected.push_back(i);
  for (const char* name : {"oracle", "quest", "sparq"}) {
    EXPECT_EQ(data.choose(name, 0), expected) << name;
  }
}

TEST(ScoredSelection, WhatIsNoNumberComesLast) {
  const float nan = std::nanf("");
  const SelectionCase broken(kTokens, [&](uint64_t i) {
    const bool key_of_100 = i / (SelectionCase::kKvHeads * kDim) == 100;
    return key_of_100 ? nan : 3 * noise(3 * 1000003 + i);
  });
  for (const char* name : {"oracle", "sparq", "quest"}) {
    const Set set = broken.choose(name, 0);
    EXPECT_EQ(set.size(), size_t{kBudget}) << name;
    if (name == std::string("quest")) continue;  // its bounds ignore NaN
    EXPECT_FALSE(std::count(set.begin(), set.end(), 100)) << name;
  }
  EXPECT_EQ(SelectionCase(kTokens, [&](uint64_t) { return nan; }).choose("oracle", 0).size(),
            size_t{kBudget});
}

TEST(ScoredSelection, StreamingTakesEightSinksAndTheNewest) {
  Set expected{0, 1, 2, 3, 4, 5, 6, 7};
  for (int i = kTokens - (kBudget - 8); i < kTokens; ++i) expected.push_back(i);
  EXPECT_EQ(noisy(1).choose("streaming", 0), expected);
}

// Quest's bounds computed plainly: pages of 16 tokens, taken in order of rank until the budget is
// used up.
TEST(ScoredSelection, QuestTakesPagesByTheirBounds) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SelectionCase data = noisy(seed);
    std::vector<std::vector<double>> bounds(kGroup, std::vector<double>(kTokens));
    for (int h = 0; h < kGroup; ++h) {
      for (int t = 0; t < kTokens; ++t) {
        double sum = 0;
        for (int d = 0; d < kDim; ++d) {
          double low = 1e300;
          double high = -1e300;
          for (int p = t / 16 * 16; p < std::min(kTokens, t / 16 * 16 + 16); ++p) {
            low = std::min<double>(low, data.key(p, 0)[d]);
            high = std::max<double>(high, data.key(p, 0)[d]);
          }
          const double q = data.query(kTokens - 1, h)[d];
          sum += std::max(q * low, q * high);
        }
        bounds[static_cast<size_t>(h)][static_cast<size_t>(t)] = sum;
      }
    }
    // Bitwise equal within a page, because ties are broken by position.
    EXPECT_EQ(data.choose("quest", 0), best(joined(bounds)));
  }
}

TEST(ScoredSelection, SparqScoresTheLargestDimensions) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SelectionCase data = noisy(seed);
    std::vector<std::pair<double, int>> size;
    for (int d = 0; d < kDim; ++d) {
      double sum = 0;
      for (int h = 0; h < kGroup; ++h) sum -= std::abs(data.query(kTokens - 1, h)[d]);
      size.emplace_back(sum, d);
    }
    std::sort(size.begin(), size.end());
    std::vector<double> all(kTokens);
    for (int h = 0; h < kGroup; ++h) {
      const float* q = data.query(kTokens - 1, h);
      double whole = 0;
      double part = 0;
      std::vector<double> scores(kTokens);
      for (int d = 0; d < kDim; ++d) whole += std::abs(q[d]);
      for (int i = 0; i < kDim / 2; ++i) {
        const int d = size[static_cast<size_t>(i)].second;
        part += std::abs(q[d]);
        for (int t = 0; t < kTokens; ++t) {
          scores[static_cast<size_t>(t)] += static_cast<double>(q[d]) * data.key(t, 0)[d];
        }
      }
      const auto weights = softmax_of(scores, SelectionCase::kScale * std::sqrt(whole / part));
      for (size_t t = 0; t < all.size(); ++t) all[t] += weights[t];
    }
    EXPECT_EQ(data.choose("sparq", 0), best(all)) << seed;
  }
}

}  // namespace
}  // namespace fasa::testing
