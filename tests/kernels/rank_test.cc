// Calibration's ranking kernels of every instruction set against the scalar reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/rank_bodies.h"
#include "tests/support/reference/rank.h"

namespace fasa::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kTokens[] = {1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 100, 1000};

class Rank : public ::testing::TestWithParam<Target> {
 protected:
  const RankBodies& bodies() const { return rank_bodies(GetParam()); }
  std::vector<float> numbers(size_t count, bool wild = false) {
    std::vector<float> values(count);
    for (float& value : values) {
      // rounded, so that equal values occur and sums of products are exact
      value = std::round(normal_(random_) * 8) / 8;
      if (!wild || random_() % 5 != 0) continue;
      constexpr float kWild[] = {0, -0.0f, kInfinity, -kInfinity, kNaN};
      value = kWild[random_() % 5];
    }
    return values;
  }

 private:
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

TEST_P(Rank, ScoresOfEveryGroupAreTheReferences) {
  for (const size_t tokens : kTokens) {
    for (const int heads : {1, 2, 3, 4, 5, 8}) {
      for (const bool begun : {false, true}) {
        const auto count = static_cast<size_t>(heads);
        const size_t stride = tokens + 3;
        const std::vector<float> base = numbers(count * stride);
        const std::vector<float> keys = numbers(2 * tokens);
        const std::vector<float> first = numbers(count);
        const std::vector<float> second = numbers(count);
        std::vector<float> scores(count * stride, 99);
        std::vector<float> best(count);
        bodies().score({.heads = heads,
                        .tokens = static_cast<int64_t>(tokens),
                        .stride = static_cast<int64_t>(stride),
                        .base = begun ? base.data() : nullptr,
                        .first_keys = keys.data(),
                        .second_keys = keys.data() + tokens,
                        .first = first.data(),
                        .second = second.data(),
                        .scores = scores.data(),
                        .best = best.data()});
        for (size_t h = 0; h < count; ++h) {
          const float* row = base.data() + h * stride;
          const std::vector<float> expected = reference::chunk_scores(
              begun ? std::vector<float>(row, row + tokens) : std::vector<float>(), first[h],
              second[h], keys.data(), keys.data() + tokens, tokens);
          const float* given = scores.data() + h * stride;
          EXPECT_EQ(std::vector<float>(given, given + tokens), expected);
          EXPECT_EQ(best[h], reference::best_score(expected));
          EXPECT_EQ(given[tokens], 99);  // nothing is written past the row
        }
      }
    }
  }
}

TEST_P(Rank, SoftCapIsTheTangents) {
  for (const size_t tokens : kTokens) {
    for (const float cap : {0.5f, 3.0f, 1000.0f}) {
      const std::vector<float> scores = numbers(tokens, true);
      std::vector<float> capped(tokens + 1, 99), in_place = scores;
      bodies().soft_cap(scores.data(), static_cast<int64_t>(tokens), cap, capped.data());
      bodies().soft_cap(in_place.data(), static_cast<int64_t>(tokens), cap, in_place.data());
      for (size_t t = 0; t < tokens; ++t) {
        const double expected = double{cap} * std::tanh(double{scores[t]} / double{cap});
        EXPECT_EQ(std::isnan(capped[t]), std::isnan(expected));
        if (std::isnan(expected)) continue;
        EXPECT_NEAR(capped[t], expected, 1e-6 * std::abs(expected)) << scores[t];
        EXPECT_EQ(capped[t], in_place[t]);
      }
      EXPECT_EQ(capped[tokens], 99);
    }
  }
}

TEST_P(Rank, DeficitsTakeWhatIsNoNumberForTheWorst) {
  for (const size_t tokens : kTokens) {
    for (const size_t heads : {1u, 2u, 3u, 4u, 7u}) {
      std::vector<std::vector<float>> rows;
      std::vector<float> flat;
      std::vector<float> best;
      for (size_t h = 0; h < heads; ++h) {
        rows.push_back(numbers(tokens, true));
        flat.insert(flat.end(), rows.back().begin(), rows.back().end());
        best.push_back(bodies().best(rows.back().data(), static_cast<int64_t>(tokens)));
        EXPECT_EQ(best.back(), reference::best_score(rows.back()));
      }
      std::vector<int32_t> deficits(tokens);
      bodies().fold(flat.data(), static_cast<int64_t>(tokens), best.data(), static_cast<int>(heads),
                    static_cast<int64_t>(tokens), deficits.data());
      EXPECT_EQ(deficits, reference::deficits(rows));
    }
  }
}

TEST_P(Rank, CountsAndSumsAreExact) {
  std::mt19937 random(3);
  for (const size_t tokens : kTokens) {
    std::vector<int32_t> deficits(tokens);
    std::vector<float> weights(tokens);
    for (size_t t = 0; t < tokens; ++t) {
      deficits[t] = static_cast<int32_t>(random() % 9);
      weights[t] = static_cast<float>(random() % 64);
    }
    for (int32_t low = 0; low <= 9; ++low) {
      for (const int32_t high : {low, low + 1, 9}) {
        int64_t below = 0;
        double sum = 0;
        std::vector<int32_t> between;
        for (size_t t = 0; t < tokens; ++t) {
          below += deficits[t] < low ? 1 : 0;
          sum += deficits[t] < low ? double{weights[t]} : 0.0;
          if (deficits[t] >= low && deficits[t] < high) between.push_back(static_cast<int32_t>(t));
        }
        const auto count = static_cast<int64_t>(tokens);
        EXPECT_EQ(bodies().count_below(deficits.data(), count, low), below);
        std::vector<int32_t> given(tokens);
        int64_t found = -1;
        EXPECT_EQ(bodies().sum_below(deficits.data(), weights.data(), count, low, high,
                                     given.data(), &found),
                  sum);
        given.resize(static_cast<size_t>(found));
        EXPECT_EQ(given, between);
      }
    }
  }
}

TEST_P(Rank, WeightsAreExponentialsAndWhatIsNoNumberHasNone) {
  for (const size_t tokens : kTokens) {
    const std::vector<float> scores = numbers(tokens, true);
    const float best = reference::best_score(scores);
    std::vector<float> weights(tokens);
    const double sum =
        bodies().weigh(scores.data(), static_cast<int64_t>(tokens), 0.25f, best, weights.data());
    double expected = 0;
    for (size_t t = 0; t < tokens; ++t) {
      const double weight = std::exp(0.25 * (double{scores[t]} - double{best}));
      EXPECT_NEAR(weights[t], weight >= 0 ? weight : 0, 1e-6);
      expected += double{weights[t]};
    }
    EXPECT_NEAR(sum, expected, 1e-5 * static_cast<double>(tokens));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Rank, ::testing::ValuesIn(supported_targets()),
                         [](const auto& test) { return std::string(target_name(test.param)); });

}  // namespace
}  // namespace fasa::cpu
