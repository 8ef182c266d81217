// Overlap of a token set with the previous step's set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/select_plan.h"

namespace fasa {

// Counts without sinks and recent tokens, which are in every set.
struct OverlapCount {
  uint64_t kept = 0;     // also in the previous step's set
  uint64_t entries = 0;  // of sets with a previous set
  double share() const {
    return entries == 0 ? 1.0 : static_cast<double>(kept) / static_cast<double>(entries);
  }
  OverlapCount& operator+=(const OverlapCount& other) {
    kept += other.kept;
    entries += other.entries;
    return *this;
  }
};

// Remembers each head's last set. Thread-safe: a stream adds sets while the host reads counts.
class SetOverlap {
 public:
  // Call after a selection, with its sets in host-readable memory.
  void observe(const SelectParams& params) {
    if (params.ahead > 0) return;
    const std::lock_guard lock(mutex_);
    const auto layer = static_cast<size_t>(params.step.attending_layer());
    if (counts_.size() <= layer) counts_.resize(layer + 1);
    if (last_.size() <= layer) last_.resize(layer + 1);
    const int kv_heads = params.step.layout.kv_heads;
    for (int i = 0; i < params.step.count; ++i) {
      const SequenceDesc& sequence = params.step.sequences[i];
      if (sequence.mode != StepMode::kDecode) continue;
      const SelectPlan plan = plan_selection(params, sequence);
      for (int h = 0; h < params.step.head_count(); ++h) {
        const int head = params.step.first_head() + h;
        const int64_t at = int64_t{i} * kv_heads + head;
        const std::span set(params.sets + at * params.selected_capacity,
                            static_cast<size_t>(params.selected_sizes[at]));
        add(layer, static_cast<size_t>(at), set, plan);
      }
    }
  }

  // Counts per layer since the last call.
  std::vector<OverlapCount> take() {
    const std::lock_guard lock(mutex_);
    std::vector<OverlapCount> taken(counts_.size());
    taken.swap(counts_);
    return taken;
  }

 private:
  void add(size_t layer, size_t head, std::span<const int32_t> set, const SelectPlan& plan) {
    auto& heads = last_[layer];
    if (heads.size() <= head) heads.resize(head + 1);
    std::vector<int32_t>& last = heads[head];
    if (!last.empty()) {
      for (const int32_t position : set) {
        if (position < plan.sinks_end || position >= plan.recent_begin) continue;
        ++counts_[layer].entries;
        counts_[layer].kept += std::binary_search(last.begin(), last.end(), position) ? 1 : 0;
      }
    }
    last.assign(set.begin(), set.end());
  }

  std::mutex mutex_;
  std::vector<OverlapCount> counts_;
  std::vector<std::vector<std::vector<int32_t>>> last_;  // [layer][sequence x kv_head]
};

}  // namespace fasa
