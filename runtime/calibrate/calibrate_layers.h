// Finds the number of tokens that each layer needs. A layer with widely spread attention, for which
// the usual count keeps too little, gets more tokens instead of becoming dense.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/calibrate/calibrate_query.h"
#include "runtime/calibrate/calibrate_samples.h"

namespace fasa {

// Finds the count at which the tokens with the best true scores, sinks and recent ones included,
// keep a share `keep` of the attention of all the layer's queries and heads. Tries 1, 1.5, 2, 3, 4,
// 6, ... times the usual count.
class LayerSearch {
 public:
  // `rule.window`: the usual count; `tokens`: length of the text.
  LayerSearch(const SelectionRule& rule, double keep, int64_t tokens);
  void add(size_t layer, const HeadSamples& samples);
  // Per layer: the smallest count that keeps enough; if none does, the largest count tried.
  std::vector<int> counts() const;
  // Share of the layer's attention that the usual count keeps.
  double kept_by_usual(size_t layer) const { return share(layer, 0); }

 private:
  struct Layer {
    std::vector<double> kept;  // one entry per count
    double all = 0;
  };
  double share(size_t layer, size_t count) const {
    const Layer& one = layers_[layer];
    return one.all > 0 ? one.kept[count] / one.all : 1;
  }

  SelectionRule rule_;
  double keep_;
  std::vector<int64_t> tried_;  // ascending
  std::vector<Layer> layers_;
};

}  // namespace fasa
