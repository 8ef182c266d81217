// The prefetch of one step.
#pragma once

#include <cstdint>

namespace fasa {

// Rows of the last steps for each entry of their sets; below 0: not counted yet.
struct PrefetchCounts {
  double missing = -1;   // not among the hot rows, or only because they were fetched ahead
  double coverage = -1;  // share of these that were fetched ahead
  double ahead = -1;     // fetched ahead, used or not

  bool operator==(const PrefetchCounts&) const = default;
};

struct PrefetchPlan {
  int depth = 0;     // layers ahead, 0 = no predictions
  int32_t rows = 0;  // maximum per sequence and KV head
  // By lists of the last step, else by predicted sets. This step lists runners-up for the next.
  bool runners_up = false;
  // For runners-up with an automatic depth: whether they pay is decided by these.
  bool trial = false;  // fetch ahead anyway, to count what it brings
  PrefetchCounts counts = {};
  double layer_seconds = 0;  // of compute from one layer to the next; 0: not measured yet

  bool on() const { return depth > 0 && rows > 0; }
};

}  // namespace fasa
