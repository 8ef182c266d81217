#include "runtime/calibrate/calibrate_layers.h"

#include <algorithm>

#include "runtime/base/parallel.h"

namespace fasa {

LayerSearch::LayerSearch(const SelectionRule& rule, double keep, int64_t tokens)
    : rule_(rule), keep_(keep), tried_{rule.window} {
  for (int64_t count = rule.window; count < tokens; count *= 2) {
    tried_.push_back(count + count / 2);
    tried_.push_back(2 * count);
  }
}

// A set smaller than the visible tokens holds the protected tokens and the best distant ones.
void LayerSearch::add(size_t layer, const HeadSamples& samples) {
  if (layers_.size() <= layer) layers_.resize(layer + 1);
  layers_[layer].kept.resize(tried_.size());
  std::vector<double> all(tried_.size());
  parallel_for(size_t{0}, tried_.size(), [&](size_t i) {
    QueryScratch scratch;
    SelectionRule rule = rule_;
    rule.window = tried_[i];
    for (size_t q = 0; q < samples.query_count(); ++q) {
      const CalibrationQuery query(samples, q, rule, scratch);
      double distant = 0;
      for (int head = 0; head < samples.gqa_group; ++head) distant += query.distant_attention(head);
      all[i] += samples.gqa_group;
      layers_[layer].kept[i] += samples.gqa_group - distant + query.oracle_distant();
    }
  });
  layers_[layer].all += all[0];
}

std::vector<int> LayerSearch::counts() const {
  std::vector<int> counts;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    size_t i = 0;
    while (i + 1 < tried_.size() && share(layer, i) < keep_) ++i;
    counts.push_back(static_cast<int>(tried_[i]));
  }
  return counts;
}

}  // namespace fasa
