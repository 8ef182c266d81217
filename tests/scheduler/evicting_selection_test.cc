// Selections that evict, against plain references: whole histories computed in double precision
// from the first token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "tests/scheduler/selection_case.h"
#include "tests/support/tape.h"

namespace fasa::testing {
namespace {

using Set = std::vector<int32_t>;

constexpr int kTokens = 190;
constexpr int kPrompt = 90;
constexpr int kBudget = 24;
constexpr int kDim = SelectionCase::kDim;
constexpr int kGroup = SelectionCase::kGroup;

SelectionCase noisy(uint64_t seed) {
  return SelectionCase(kTokens, [seed](uint64_t i) { return 3 * noise(seed * 1000003 + i); });
}

Set first_tokens(int count) {
  Set all;
  for (int i = 0; i < count; ++i) all.push_back(i);
  return all;
}

std::vector<double> weights(const SelectionCase& data, int query, int head, const Set& tokens) {
  std::vector<double> values;
  double top = -1e300;
  double sum = 0;
  for (const int32_t t : tokens) {
    values.push_back(SelectionCase::kScale * data.dot(query, head, t));
    top = std::max(top, values.back());
  }
  for (double& value : values) sum += value = std::exp(value - top);
  for (double& value : values) value /= sum;
  return values;
}

// Keeps the best `kBudget` tokens by merit; sinks, recent tokens and the newest `window` are always
// kept.
Set pruned(const Set& kept, int position, int window, const std::map<int32_t, double>& merit) {
  if (kept.size() <= kBudget) return kept;
  std::vector<std::pair<double, int32_t>> order;
  for (size_t i = 0; i < kept.size(); ++i) {
    const int32_t t = kept[i];
    const bool stays = t < 2 || t > position - 4 || i + static_cast<size_t>(window) >= kept.size();
    order.emplace_back(stays ? -1e300 : -merit.at(t), t);
  }
  std::sort(order.begin(), order.end());
  Set left;
  for (size_t i = 0; i < kBudget; ++i) left.push_back(order[i].second);
  std::sort(left.begin(), left.end());
  return left;
}

std::vector<Set> plain_h2o(const SelectionCase& data, int kv_head) {
  std::map<int32_t, double> heavy;
  Set kept;
  std::vector<Set> all;
  for (int p = 0; p < kTokens; ++p) {
    kept.push_back(p);
    heavy[p] = 0;
    if (p >= kPrompt) {
      kept = pruned(kept, p, kBudget / 2, heavy);
      all.push_back(kept);
    }
    const Set seen = p < kPrompt ? first_tokens(p + 1) : kept;
    for (int h = 0; h < kGroup; ++h) {
      const auto values = weights(data, p, kv_head * kGroup + h, seen);
      for (size_t i = 0; i < seen.size(); ++i) heavy[seen[i]] += values[i];
    }
  }
  return all;
}

constexpr int kWindow = kBudget / 2;  // less than 32

std::vector<double> pooled(const std::vector<double>& values) {
  std::vector<double> all;
  const auto count = static_cast<int>(values.size());
  for (int i = 0; i < count; ++i) {
    double most = -1e300;
    for (int j = std::max(0, i - 3); j <= std::min(count - 1, i + 3); ++j) {
      most = std::max(most, values[static_cast<size_t>(j)]);
    }
    all.push_back(most);
  }
  return all;
}

using Values = std::function<std::vector<double>(int position, const Set& kept)>;

// `values`: of the tokens in `kept` that are older than the window. Values are computed every third
// step; tokens without a value stay.
std::vector<Set> plain_windowed(const Values& values) {
  std::map<int32_t, double> merit;
  Set kept = first_tokens(kPrompt);
  std::vector<Set> all;
  for (int p = kPrompt; p < kTokens; ++p) {
    kept.push_back(p);
    if ((p - kPrompt) % (kWindow / 4) == 0) {
      merit.clear();
      const std::vector<double> found = values(p, kept);
      for (size_t i = 0; i < kept.size(); ++i) merit[kept[i]] = i < found.size() ? found[i] : 1e300;
    }
    merit.emplace(p, 1e300);
    kept = pruned(kept, p, 0, merit);
    all.push_back(kept);
  }
  return all;
}

std::vector<Set> plain_snapkv(const SelectionCase& data, int kv_head) {
  return plain_windowed([&](int p, const Set& kept) {
    std::vector<double> votes(kept.size() - kWindow);
    for (int q = p - 32; q < p; ++q) {
      Set seen;
      for (const int32_t t : kept) {
        if (t <= q) seen.push_back(t);
      }
      for (int h = 0; h < kGroup; ++h) {
        const auto values = weights(data, q, kv_head * kGroup + h, seen);
        for (size_t i = 0; i < std::min(votes.size(), seen.size()); ++i) votes[i] += values[i];
      }
    }
    return pooled(votes);
  });
}

std::vector<Set> plain_rkv(const SelectionCase& data, int kv_head) {
  const auto cosine = [&](int32_t a, int32_t b) {
    double ab = 0;
    double aa = 0;
    double bb = 0;
    for (int d = 0; d < kDim; ++d) {
      const double x = data.key(a, kv_head)[d];
      const double y = data.key(b, kv_head)[d];
      ab += x * y;
      aa += x * x;
      bb += y * y;
    }
    return ab / std::sqrt(aa * bb);
  };
  return plain_windowed([&](int p, const Set& kept) {
    const size_t older = kept.size() - kWindow;
    std::vector<double> importance(older);
    for (int q = p - 8; q < p; ++q) {
      std::vector<double> logits(older);
      double sum = 0;
      for (size_t i = 0; i < older; ++i) {
        logits[i] = -1e300;
        for (int h = 0; h < kGroup; ++h) {
          logits[i] = std::max(logits[i],
                               SelectionCase::kScale * data.dot(q, kv_head * kGroup + h, kept[i]));
        }
      }
      for (double& logit : logits) sum += logit = std::exp(logit);
      for (size_t i = 0; i < older; ++i) importance[i] += logits[i] / sum / 8;
    }
    importance = pooled(importance);
    // The redundancy matrix without the diagonal, and for each i without the newest j similar to i.
    std::vector<double> redundancy(kept.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      bool resembled = false;
      for (size_t j = kept.size(); j-- > 0;) {
        if (i == j) continue;
        const double alike = cosine(kept[i], kept[j]);
        if (alike > 0.5 && !resembled) {
          resembled = true;
          continue;
        }
        redundancy[j] += alike / static_cast<double>(kept.size());
      }
    }
    double sum = 0;
    for (double& value : redundancy) sum += value = std::exp(value);
    std::vector<double> merits(older);
    for (size_t i = 0; i < older; ++i) merits[i] = 0.1 * importance[i] - 0.9 * redundancy[i] / sum;
    return merits;
  });
}

using Plain = std::vector<Set> (*)(const SelectionCase&, int);

class EvictingSelection : public ::testing::TestWithParam<std::pair<const char*, Plain>> {};

TEST_P(EvictingSelection, KeepsWhatAPlainHistoryKeeps) {
  const auto& [name, plain] = GetParam();
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SelectionCase data = noisy(seed);
    for (int head = 0; head < SelectionCase::kKvHeads; ++head) {
      const std::vector<Set> expected = plain(data, head);
      const std::vector<Set> kept = data.keep(name, kPrompt, head);
      ASSERT_EQ(kept.size(), expected.size());
      for (size_t i = 0; i < kept.size(); ++i) {
        ASSERT_EQ(kept[i], expected[i]) << name << " seed " << seed << " step " << i;
      }
    }
  }
}

TEST_P(EvictingSelection, NothingComesBack) {
  SelectionCase data = noisy(9);
  const std::vector<Set> kept = data.keep(GetParam().first, kPrompt, 0);
  for (size_t i = 1; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].size(), size_t{kBudget});
    for (const int32_t token : kept[i]) {
      const bool newest = token == kPrompt + static_cast<int32_t>(i);
      EXPECT_TRUE(newest || std::binary_search(kept[i - 1].begin(), kept[i - 1].end(), token));
    }
  }
}

// otherwise the tests above would prove little
TEST_P(EvictingSelection, ChoiceByMeritIsNotAWindow) {
  SelectionCase data = noisy(9);
  const Set last = data.keep(GetParam().first, kPrompt, 0).back();
  Set window{0, 1};
  for (int t = kTokens - (kBudget - 2); t < kTokens; ++t) window.push_back(t);
  EXPECT_NE(last, window);
  EXPECT_NE(last, data.keep(GetParam().first, kPrompt, 1).back());
}

TEST_P(EvictingSelection, EqualMeritsKeepTheLowerPosition) {
  SelectionCase data(kTokens, [](uint64_t) { return 1.0f; });
  const Set kept = data.keep(GetParam().first, kPrompt, 0).front();
  EXPECT_EQ(kept.size(), size_t{kBudget});
  if (GetParam().first != std::string("h2o")) {  // in H2O earlier tokens have seen more queries
    EXPECT_EQ(kept[5], 5);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EvictingSelection,
                         ::testing::Values(std::pair("snapkv", &plain_snapkv),
                                           std::pair("h2o", &plain_h2o),
                                           std::pair("rkv", &plain_rkv)),
                         [](const auto& one) { return std::string(one.param.first); });

}  // namespace
}  // namespace fasa::testing
