#include "runtime/lab/analyze/agreement.h"

#include <algorithm>
#include <numeric>

#include "runtime/calibrate/calibrate_query.h"

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

void AgreementTable::add(const HeadSamples& samples, int window, int layer, int first_head) {
  const size_t queries = samples.query_count();
  QueryScratch scratch;
  counts_.fill(0);
  for (size_t i = 0; i < queries; ++i) {
    const int stretch = static_cast<int>(i * kStretches / queries);
    ++counts_[static_cast<size_t>(stretch)];
    ScoreRows truth;
    const CalibrationQuery query(samples, i, {.window = window}, scratch, &truth);
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

}  // namespace fasa
