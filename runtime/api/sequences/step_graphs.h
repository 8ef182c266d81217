// Decode steps recorded as device graphs, found by the values that their work depends on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "offload/device.h"

namespace fasa {

// All values that a step's work depends on, except contents of device memory: equal words mean
// equal work.
using StepKey = std::vector<uint64_t>;

inline uint64_t key_word(const void* address) { return reinterpret_cast<uintptr_t>(address); }

class StepGraphs {
 public:
  struct Entry {
    StepKey key;
    Graph graph;  // empty: the step came only once, or cannot be recorded
    bool refused = false;
    bool attends = true;  // false: it only appends
    uint64_t last_used = 0;
  };

  // Returns null for a new key, and remembers it: steps that never repeat are not worth a graph,
  // and the first of a kind makes the CUDA runtime load its kernels. The least recently used keys
  // are dropped.
  Entry* find(StepKey key) {
    ++now_;
    for (Entry& entry : entries_) {
      if (entry.key != key) continue;
      entry.last_used = now_;
      return &entry;
    }
    if (entries_.size() == kMax) {
      entries_.erase(std::min_element(entries_.begin(), entries_.end(),
                                      [](auto& a, auto& b) { return a.last_used < b.last_used; }));
    }
    entries_.push_back({std::move(key), {}, false, true, now_});
    return nullptr;
  }
  void clear() { entries_.clear(); }
  uint64_t bytes(const Device& device) const {
    uint64_t bytes = 0;
    for (const Entry& entry : entries_) {
      if (entry.graph) bytes += device.graphs()->graph_bytes(entry.graph.view());
    }
    return bytes;
  }

 private:
  // Two descriptor slots times a few shapes, which differ by waves and prefetch depth.
  static constexpr size_t kMax = 8;
  std::vector<Entry> entries_;
  uint64_t now_ = 0;
};

}  // namespace fasa
