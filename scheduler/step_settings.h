// What the pipeline needs to know of the configuration, resolved per layer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/layout.h"
#include "kernels/params.h"

namespace fasa {

struct LayerSettings {
  bool dense = false;  // attends to every visible token, never pruned
  TokenBudget budget;
  int window = 0;  // tokens, 0 = none
};

struct StepSettings {
  CacheLayout layout;
  float scale = 1;  // of q·k before the softmax
  bool rows_on_device = true;
  int copy_streams = 2;
  std::vector<LayerSettings> layers;

  int layer_count() const { return layout.layers; }
  const LayerSettings& layer(int index) const { return layers[static_cast<size_t>(index)]; }
  // Sinks, recent and one token that competes.
  int32_t budget_floor() const { return layout.residents() + 1; }
  bool any_dense() const {
    return std::any_of(layers.begin(), layers.end(), [](const auto& l) { return l.dense; });
  }
};

}  // namespace fasa
