// How many tokens each layer needs: layers whose attention is spread so widely that the usual set
// keeps too little of it get more tokens, instead of all.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/calibrate/calibrate_query.h"
#include "runtime/calibrate/calibrate_samples.h"

namespace fasa {

// The best tokens by the true scores, sinks and recent among them, hold `keep` of the attention of
// all queries and heads of the layer; counts of usual, 1.5, 2, 3, 4, 6, ... times as many are
// tried.
class LayerSearch {
 public:
  // `rule.window`: the usual count; tokens: of the text.
  LayerSearch(const SelectionRule& rule, double keep, int64_t tokens);
  void add(size_t layer, const HeadSamples& samples);
  // Per layer: the least count that keeps enough; where none does, the greatest tried.
  std::vector<int> counts() const;
  // Share of the layer's attention in the usual set.
  double kept_by_usual(size_t layer) const { return share(layer, 0); }

 private:
  struct Layer {
    std::vector<double> kept;  // by count
    double all = 0;
  };
  double share(size_t layer, size_t count) const {
    const Layer& one = layers_[layer];
    return one.all > 0 ? one.kept[count] / one.all : 1;
  }

  SelectionRule rule_;
  double keep_;
  std::vector<int64_t> tried_;  // rising
  std::vector<Layer> layers_;
};

}  // namespace fasa
