// Decode steps recorded as graphs of the device, by what their work depends on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "offload/device.h"

namespace fasa {

// All that the work of a step depends on but what lies in device memory, whatever it means: equal
// words, equal work.
using StepKey = std::vector<uint64_t>;

inline uint64_t key_word(const void* address) { return reinterpret_cast<uintptr_t>(address); }

class StepGraphs {
 public:
  struct Entry {
    StepKey key;
    Graph graph;  // none yet: the step came once, or cannot be recorded
    bool refused = false;
    bool attends = true;  // else it only appends
    uint64_t last_used = 0;
  };

  // Null where the key is new: it is known from now on. Steps that never come again are not worth a
  // graph, and the first of a kind has the runtime load what it needs. Of many keys, those that
  // were not seen for longest are forgotten.
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
  // Two slots of descriptors by few shapes: lengths that pass a wave, depths of prefetching.
  static constexpr size_t kMax = 8;
  std::vector<Entry> entries_;
  uint64_t now_ = 0;
};

}  // namespace fasa
