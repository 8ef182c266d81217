// The calibration objectives on heads with results known by hand, and against a plain evaluation of
// their definitions.
#include "runtime/calibrate/calibrate_ranking.h"

#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "runtime/base/error.h"

namespace fasa {
namespace {

// A head of `chunks` interleaved FCs over `tokens` tokens; keys are zero, and there are no queries
// yet.
HeadSamples empty_head(int chunks, int64_t tokens, int group) {
  HeadSamples head;
  head.gqa_group = group;
  head.key_dim = 2 * chunks;
  head.tokens = tokens;
  for (int i = 0; i < chunks; ++i) head.chunks.push_back({2 * i, 2 * i + 1});
  head.keys.resize(static_cast<size_t>(head.key_dim * tokens));
  return head;
}

float& key(HeadSamples& head, int64_t token, int dim) {
  return head.keys[static_cast<size_t>(dim * head.tokens + token)];
}

void add_query(HeadSamples& head, int32_t position, const std::vector<float>& values) {
  head.positions.push_back(position);
  head.queries.insert(head.queries.end(), values.begin(), values.end());
}

HeadSamples random_head(unsigned seed, int chunks, int64_t tokens, int group, int queries) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  HeadSamples head = empty_head(chunks, tokens, group);
  for (float& value : head.keys) value = normal(random);
  for (int q = 0; q < queries; ++q) {
    std::vector<float> values(static_cast<size_t>(group * head.key_dim));
    for (float& value : values) value = normal(random);
    add_query(head, static_cast<int32_t>(tokens - 1 - q * 3), values);
  }
  return head;
}

std::vector<int> order_of(const HeadRanking& ranking) {
  std::vector<int> order;
  for (const auto& chunk : ranking.chunks) order.push_back(chunk[0] / 2);
  return order;
}

// Two FCs and six dimensions that are not rotated.
HeadSamples partly_rotated_head(unsigned seed, int group) {
  HeadSamples head = random_head(seed, 5, 101, group, 6);
  head.chunks = {{0, 2}, {1, 3}, {4, 4}, {5, 5}, {6, 6}, {7, 7}, {8, 8}, {9, 9}};
  return head;
}

std::vector<int> order_in(const HeadSamples& head, const HeadRanking& ranking) {
  std::vector<int> order;
  for (const auto& chunk : ranking.chunks) {
    for (size_t i = 0; i < head.chunks.size(); ++i) {
      if (head.chunks[i].first == chunk[0]) order.push_back(static_cast<int>(i));
    }
  }
  return order;
}

// By definition: the captured part of the set of the k best tokens, scored by the FCs in `picked`.
double plain_captured(const HeadSamples& head, size_t q, const std::vector<int>& picked,
                      const RankingOptions& options) {
  const auto visible = static_cast<size_t>(head.visible_end(q));
  const int recent_from = static_cast<int>(visible) - options.recent;
  const auto given = [&](int t) { return t < options.sinks || t >= recent_from; };
  std::vector<double> score(visible, -1e300), attention(visible);
  for (int member = 0; member < head.gqa_group; ++member) {
    std::vector<double> part(visible), whole(visible);
    for (size_t t = 0; t < visible; ++t) {
      if (!head.slopes.empty()) {
        const double distance = static_cast<double>(t) - static_cast<double>(visible - 1);
        part[t] = whole[t] = double{head.slopes[static_cast<size_t>(member)]} * distance;
      }
      for (int c = 0; c < static_cast<int>(head.chunks.size()); ++c) {
        double dot = 0;
        const Geometry::Pair dims = head.chunks[static_cast<size_t>(c)];
        for (const int dim : std::set{dims.first, dims.second}) {
          dot += double{head.query(q, member)[dim]} * double{head.key_plane(dim)[t]};
        }
        whole[t] += dot;
        if (std::find(picked.begin(), picked.end(), c) != picked.end()) part[t] += dot;
      }
    }
    if (const double cap = head.score_cap; cap > 0) {
      for (double& value : part) value = cap * std::tanh(value / cap);
      for (double& value : whole) value = cap * std::tanh(value / cap);
    }
    const double top = *std::max_element(part.begin(), part.end());
    double sum = 0;
    for (const double value : whole) sum += std::exp(value * double{head.scale});
    for (size_t t = 0; t < visible; ++t) {
      score[t] = std::max(score[t], part[t] - top);
      attention[t] += std::exp(whole[t] * double{head.scale}) / sum;
    }
  }
  std::vector<int> order(visible);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    if (given(a) != given(b)) return given(a);
    return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
  });
  double captured = 0;
  for (int i = 0; i < std::min(options.window, static_cast<int>(visible)); ++i) {
    const int t = order[static_cast<size_t>(i)];
    if (!given(t)) captured += attention[static_cast<size_t>(t)];
  }
  return captured;
}

double plain_total(const HeadSamples& head, const std::vector<int>& picked,
                   const RankingOptions& options) {
  double total = 0;
  for (size_t q = 0; q < head.query_count(); ++q) {
    total += plain_captured(head, q, picked, options);
  }
  return total;
}

// Each pick is the one that adds most to the picks before it.
void expect_greedy(const HeadSamples& head, const std::vector<int>& order,
                   const RankingOptions& options) {
  std::vector<int> picked;
  for (const int chunk : order) {
    double best = 0, own = 0;
    for (int c = 0; c < static_cast<int>(head.chunks.size()); ++c) {
      if (std::find(picked.begin(), picked.end(), c) != picked.end()) continue;
      std::vector<int> with = picked;
      with.push_back(c);
      const double total = plain_total(head, with, options);
      best = std::max(best, total);
      if (c == chunk) own = total;
    }
    EXPECT_NEAR(own, best, 1e-4) << objective_name(options.objective) << " pick " << picked.size();
    picked.push_back(chunk);
  }
}

TEST(Objectives, GreedyPicksAreTheBestByDefinition) {
  for (const int group : {1, 3}) {
    HeadSamples falling_off = partly_rotated_head(8, group);
    for (int member = 0; member < group; ++member) {
      falling_off.slopes.push_back(0.02f * static_cast<float>(member + 1));
    }
    HeadSamples capped = random_head(9, 5, 101, group, 6);
    capped.score_cap = 2;
    for (const HeadSamples& head :
         {random_head(7, 5, 101, group, 6), partly_rotated_head(7, group), falling_off, capped}) {
      const RankingOptions options{.window = 12, .sinks = 2, .recent = 5, .greedy_chunks = 0};
      const std::vector<int> order = order_in(head, rank_chunks(head, options));
      ASSERT_EQ(order.size(), head.chunks.size());
      expect_greedy(head, order, options);
    }
  }
}

// Once the slice is full, the other FCs follow in one step.
TEST(Objectives, PicksEndWithTheSlicesDimensions) {
  const HeadSamples head = partly_rotated_head(7, 2);
  RankingOptions options{.window = 12, .sinks = 2, .recent = 5, .greedy_chunks = 0};
  const HeadRanking all = rank_chunks(head, options);
  options.greedy_chunks = 2;
  const HeadRanking some = rank_chunks(head, options);
  int dims = 0;
  for (size_t i = 0; dims < 4; ++i) {
    EXPECT_EQ(some.chunks[i], all.chunks[i]) << i;
    dims += static_cast<int>(all.chunks[i].size());
  }
  EXPECT_EQ(some.dims().size(), 10u);
}

TEST(Objectives, DistantAttentionKeptByDefinition) {
  const HeadSamples head = random_head(3, 4, 77, 2, 5);
  for (const Objective objective : {Objective::kDistantAttention, Objective::kCa}) {
    const RankingOptions options{.objective = objective, .window = 14, .sinks = 3, .recent = 4};
    const HeadRanking ranking = rank_chunks(head, options);
    const double oracle = plain_total(head, {0, 1, 2, 3}, options);
    std::vector<int> picked;
    for (size_t i = 0; i < ranking.chunks.size(); ++i) {
      picked.push_back(ranking.chunks[i][0] / 2);
      EXPECT_NEAR(ranking.distant_attention_kept[i], plain_total(head, picked, options) / oracle,
                  1e-4);
    }
    EXPECT_NEAR(ranking.distant_attention_kept.back(), 1, 1e-6);
  }
}

// Tokens 0 .. 9, K = 2, the query at 9. Whole-head scores are 3 x dimension 0 + 1 x dimension 2.
TEST(Objectives, AgreementByHand) {
  HeadSamples head = empty_head(3, 10, 1);
  key(head, 4, 0) = 2;  // score 6
  key(head, 7, 2) = 5;  // score 5
  key(head, 2, 2) = 4;  // score 4
  add_query(head, 9, {3, 0, 1, 0, 0, 0});
  const HeadRanking ranking =
      rank_chunks(head, {.objective = Objective::kCa, .window = 2, .sinks = 0, .recent = 1});
  // Best two of the head: 4, 7. FC 0 alone: 4, then ties at zero, lowest first: 0. FC 1 alone:
  // 7, 2. FC 2 alone: all equal: 0, 1.
  EXPECT_EQ(ranking.agreement, (std::vector<double>{0.5, 0.5, 0}));
  EXPECT_EQ(order_of(ranking), (std::vector<int>{0, 1, 2}));  // ties: natural order
}

// FC 0 sees the neighbourhood in most queries, FC 1 the one token that a rare query looks back to.
TEST(Objectives, OnlyFarOnesFindTheRareQueryThatLooksBack) {
  constexpr int64_t kTokens = 200;
  HeadSamples head = empty_head(3, kTokens, 1);
  for (int64_t t = 0; t < kTokens; ++t) {
    key(head, t, 0) = static_cast<float>(t) * 0.1f;
    key(head, t, 2) = t == 50 ? 12.0f : 0.01f * static_cast<float>(t % 7);
    key(head, t, 4) = 0.1f * static_cast<float>(t % 5);
  }
  for (int32_t q = 0; q < 9; ++q) add_query(head, 190 + q, {2, 0, 0, 0, 0.1f, 0});
  add_query(head, 199, {0, 0, 1, 0, 0, 0});
  const RankingOptions options{.window = 20, .sinks = 2, .recent = 10};
  const auto first = [&](Objective objective) {
    RankingOptions with = options;
    with.objective = objective;
    return order_of(rank_chunks(head, with)).front();
  };
  EXPECT_EQ(first(Objective::kCa), 0);
  EXPECT_EQ(first(Objective::kDistantAttention), 1);
}

TEST(Objectives, ADominantChunkIsFirstEverywhere) {
  HeadSamples head = random_head(11, 6, 300, 2, 10);
  for (int64_t t = 0; t < head.tokens; ++t) {
    key(head, t, 8) *= 20;
    key(head, t, 9) *= 20;
  }
  for (const Objective objective : {Objective::kDistantAttention, Objective::kCa}) {
    const HeadRanking ranking =
        rank_chunks(head, {.objective = objective, .window = 30, .sinks = 4, .recent = 16});
    EXPECT_EQ(order_of(ranking).front(), 4) << objective_name(objective);
    EXPECT_GT(ranking.agreement[4], 0.8);
    EXPECT_GT(ranking.distant_attention_kept[0], 0.9);
  }
}

TEST(Objectives, AShorterGreedyRankingBeginsTheSame) {
  const HeadSamples head = random_head(5, 7, 120, 1, 4);
  RankingOptions options{.window = 15, .sinks = 2, .recent = 4};
  const std::vector<int> whole = order_of(rank_chunks(head, options));
  options.greedy_chunks = 3;
  const std::vector<int> part = order_of(rank_chunks(head, options));
  EXPECT_TRUE(std::equal(part.begin(), part.begin() + 3, whole.begin()));
  EXPECT_TRUE(std::is_permutation(part.begin(), part.end(), whole.begin()));
}

TEST(Objectives, SameResultOnAnyNumberOfThreads) {
  const HeadSamples head = random_head(9, 6, 150, 2, 12);
  const RankingOptions options{.window = 20, .sinks = 2, .recent = 4};
  HeadRanking one, four;
  tbb::task_arena(1).execute([&] { one = rank_chunks(head, options); });
  tbb::task_arena(4).execute([&] { four = rank_chunks(head, options); });
  EXPECT_EQ(one, four);
}

TEST(Objectives, DegenerateHeads) {
  const RankingOptions options{.window = 8, .sinks = 2, .recent = 4};
  const std::vector<int> natural = {0, 1, 2};
  // All keys zero; a single token; a query that sees fewer tokens than the window.
  HeadSamples zero = empty_head(3, 40, 2);
  add_query(zero, 39, std::vector<float>(12, 1.0f));
  EXPECT_EQ(order_of(rank_chunks(zero, options)), natural);
  HeadSamples single = empty_head(3, 1, 1);
  add_query(single, 0, std::vector<float>(6, 1.0f));
  EXPECT_EQ(order_of(rank_chunks(single, options)), natural);
  EXPECT_EQ(rank_chunks(single, options).distant_attention_kept, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(order_of(rank_chunks(empty_head(3, 5, 1), options)), natural);
  // NaN and infinite keys still give finite results.
  HeadSamples wild = random_head(2, 3, 60, 1, 3);
  key(wild, 5, 0) = std::numeric_limits<float>::quiet_NaN();
  key(wild, 6, 2) = std::numeric_limits<float>::infinity();
  key(wild, 7, 4) = -std::numeric_limits<float>::infinity();
  for (const double kept : rank_chunks(wild, options).distant_attention_kept) {
    EXPECT_TRUE(std::isfinite(kept));
  }
}

TEST(Objectives, WindowedLayersSeeOnlyTheirWindow) {
  // Tokens beyond the window of 30 would win by far.
  HeadSamples head = random_head(4, 3, 100, 1, 4);
  head.window = 30;
  HeadSamples changed = head;
  for (int64_t t = 0; t < 50; ++t) key(changed, t, 2) = 100;
  const RankingOptions options{.window = 10, .sinks = 2, .recent = 4};
  EXPECT_EQ(rank_chunks(head, options), rank_chunks(changed, options));
  changed.window = 0;
  EXPECT_NE(rank_chunks(head, options), rank_chunks(changed, options));
}

TEST(Objectives, NamesAndBadWindows) {
  for (const Objective objective : {Objective::kDistantAttention, Objective::kCa}) {
    EXPECT_EQ(parse_objective(objective_name(objective)), objective);
  }
  EXPECT_THROW(parse_objective("attention"), UsageError);
  EXPECT_THROW(rank_chunks(empty_head(1, 4, 1), {.window = 20, .sinks = 4, .recent = 16}),
               UsageError);
}

}  // namespace
}  // namespace fasa
