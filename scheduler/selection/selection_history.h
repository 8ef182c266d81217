// The memory of an evicting selection for one sequence: its queries, and the cached tokens per
// layer and head. Created without memory; dense layers take none.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/tensor_view.h"
#include "scheduler/selection/eviction.h"
#include "scheduler/step/sequence_memory.h"
#include "scheduler/step_settings.h"

namespace fasa {

class SelectionHistory final : public SequenceMemory {
 public:
  explicit SelectionHistory(const StepSettings& settings);

  void share(const SequenceMemory& parent, int64_t tokens, const Stream& stream) override;
  void truncate(int64_t tokens) override;
  void abort(int64_t tokens, bool /*computed*/) override { truncate(tokens); }
  // Records the queries of the sequence's new tokens: q [tokens of the step, query_heads, key_dim].
  void record(int layer, const ConstTensorView& q, const SequenceDesc& sequence);
  // Processes all recorded positions. Returns the cached tokens after the last one, ascending, if
  // they had to be chosen. One thread per head of the sets.
  const std::vector<int32_t>& advance(const StepParams& step, const SequenceDesc& sequence,
                                      int kv_head);

 private:
  struct Head {
    std::vector<int32_t> kept;
    int taken = 0;  // positions processed
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
