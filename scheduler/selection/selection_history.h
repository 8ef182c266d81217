// What a selection that evicts remembers of one sequence: its queries, and per layer and head what
// is kept. Made without memory; dense layers take none.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/tensor_view.h"
#include "scheduler/selection/eviction.h"
#include "scheduler/step_settings.h"

namespace fasa {

class SelectionHistory {
 public:
  explicit SelectionHistory(const StepSettings& settings);

  // As `other` was at length `tokens`.
  void share(const SelectionHistory& other, int64_t tokens);
  void truncate(int64_t tokens);
  // The queries of the sequence's new tokens: q [tokens of the step, query_heads, key_dim].
  void record(int layer, const ConstTensorView& q, const SequenceDesc& sequence);
  // Works in every recorded position: what is kept after the last, ascending, where it had to be
  // chosen. One thread per head of the sets.
  const std::vector<int32_t>& advance(const StepParams& step, const SequenceDesc& sequence,
                                      int head);

 private:
  struct Head {
    std::vector<int32_t> kept;
    int taken = 0;  // positions worked in
    std::unique_ptr<EvictionPolicy> policy;
  };
  struct Layer {
    QueryRecord record;
    std::vector<Head> heads;
  };

  Layer& layer(int index) { return layers_[static_cast<size_t>(index)]; }
  void take(Head& head, EvictionHead& view, const LayerSettings& settings, int position);
  void evict(Head& head, EvictionHead& view, const LayerSettings& settings, int position);

  const StepSettings& settings_;
  std::vector<Layer> layers_;
};

}  // namespace fasa
