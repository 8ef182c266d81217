#include "runtime/lab/analyze/agreement.h"

#include <algorithm>
#include <numeric>

#include "runtime/calibrate/calibrate_query.h"
#include "runtime/lab/analyze/head_query.h"

namespace fasa {

AgreementTable::AgreementTable(int layers, int query_heads, int chunks)
    : layers_(layers),
      query_heads_(query_heads),
      chunks_(chunks),
      sums_(static_cast<size_t>(layers) * static_cast<size_t>(query_heads) *
            static_cast<size_t>(chunks) * kStretches) {}

size_t AgreementTable::index(int layer, int head, int chunk, int stretch) const {
  return static_cast<size_t>(((layer * query_heads_ + head) * chunks_ + chunk) * kStretches +
                             stretch);
}

void AgreementTable::add(const HeadSamples& samples, std::span<const size_t> anchors, int window,
                         int layer, int first_head) {
  QueryScratch scratch;
  counts_.fill(0);
  for (size_t i = 0; i < anchors.size(); ++i) {
    const int stretch = static_cast<int>(i * kStretches / anchors.size());
    ++counts_[static_cast<size_t>(stretch)];
    ScoreRows truth;
    const CalibrationQuery query(samples, anchors[i], {.window = window}, scratch, &truth);
    const std::vector<double> agreement = query.agreement(truth, scratch);
    for (int head = 0; head < samples.gqa_group; ++head) {
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        sums_[index(layer, first_head + head, chunk, stretch)] +=
            agreement[static_cast<size_t>(head * chunks_ + chunk)];
      }
    }
  }
}

double AgreementTable::over(int layer, int head, int chunk, int stretches) const {
  double sum = 0;
  int64_t count = 0;
  for (int stretch = 0; stretch < stretches; ++stretch) {
    sum += sums_[index(layer, head, chunk, stretch)];
    count += counts_[static_cast<size_t>(stretch)];
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

double AgreementTable::at(int layer, int head, int chunk) const {
  return over(layer, head, chunk, kStretches);
}

std::vector<int> rank_by_agreement(const AgreementTable& table, int layer, int kv_head, int group,
                                   int stretches) {
  std::vector<double> means(static_cast<size_t>(table.chunks()));
  for (int chunk = 0; chunk < table.chunks(); ++chunk) {
    for (int head = 0; head < group; ++head) {
      means[static_cast<size_t>(chunk)] +=
          table.over(layer, kv_head * group + head, chunk, stretches);
    }
  }
  std::vector<int> order(means.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return means[static_cast<size_t>(a)] > means[static_cast<size_t>(b)];
  });
  return order;
}

double map_overlap(const AgreementTable& a, int a_stretches, const AgreementTable& b,
                   int b_stretches, int group, int count) {
  int64_t both = 0, all = 0;
  for (int layer = 0; layer < a.layers(); ++layer) {
    for (int head = 0; head < a.query_heads() / group; ++head) {
      const auto one = rank_by_agreement(a, layer, head, group, a_stretches);
      const auto other = rank_by_agreement(b, layer, head, group, b_stretches);
      for (int i = 0; i < count; ++i) {
        both += std::count(other.begin(), other.begin() + count, one[static_cast<size_t>(i)]);
      }
      all += count;
    }
  }
  return static_cast<double>(both) / static_cast<double>(all);
}

namespace {

// The k best tokens, best first.
std::vector<int32_t> best_order(const std::vector<float>& whole, int64_t k) {
  const TokenSet best = best_tokens(whole, k);
  std::vector<int32_t> order;
  for (size_t i = 0; i < best.size(); ++i) {
    if (best[i] != 0) order.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return whole[static_cast<size_t>(a)] > whole[static_cast<size_t>(b)];
  });
  return order;
}

// The share of each fifth of the head's best tokens that is among the FC's own best tokens.
void add_fifths(const std::vector<int32_t>& order, const std::vector<float>& part, double weight,
                Fifths& sums) {
  const TokenSet found = best_tokens(part, static_cast<int64_t>(order.size()));
  for (size_t fifth = 0; fifth < sums.size(); ++fifth) {
    const size_t first = fifth * order.size() / sums.size();
    const size_t end = (fifth + 1) * order.size() / sums.size();
    int64_t hits = 0;
    for (size_t i = first; i < end; ++i) hits += found[static_cast<size_t>(order[i])];
    sums[fifth] += weight * static_cast<double>(hits) / static_cast<double>(end - first);
  }
}

}  // namespace

FifthsTable find_fifths(const HeadSamples& samples, std::span<const size_t> anchors,
                        const AgreementTable& table, int window, int layer, int first_head) {
  FifthsTable result;
  const double part =
      1.0 / static_cast<double>(anchors.size() * static_cast<size_t>(samples.gqa_group));
  for (int head = 0; head < samples.gqa_group; ++head) {
    const auto ranked = rank_by_agreement(table, layer, first_head + head, 1);
    const std::span<const int> others = std::span(ranked).subspan(ranked.size() / 4);
    for (const size_t anchor : anchors) {
      const HeadQuery query(samples, anchor, head);
      const auto order = best_order(query.scores(), std::min<int64_t>(window, query.tokens()));
      add_fifths(order, query.scores(std::span(ranked).first(1)), part, result.dominant);
      for (size_t i = 0; i < others.size(); ++i) {
        add_fifths(order, query.scores(others.subspan(i, 1)),
                   part / static_cast<double>(others.size()), result.others);
      }
    }
  }
  return result;
}

}  // namespace fasa
