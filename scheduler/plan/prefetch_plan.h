// The prefetch of one step.
#pragma once

#include <cstdint>

namespace fasa {

struct PrefetchPlan {
  int depth = 0;     // layers ahead, 0 = no predictions
  int32_t rows = 0;  // maximum per sequence and KV head
  // By lists of the last step, else by predicted sets. This step lists runners-up for the next.
  bool runners_up = false;

  bool on() const { return depth > 0 && rows > 0; }
};

}  // namespace fasa
