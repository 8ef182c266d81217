// Which layers are predicted while a layer computes, and how many rows each may fetch. Pure
// functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "scheduler/plan/prefetch_plan.h"

namespace fasa {

class PrefetchPlanner {
 public:
  PrefetchPlanner(int layers, int depth) : layers_(layers), depth_(depth) {}

  // Layers [first, end) to predict while `layer` computes: the one `depth` layers ahead; for layer
  // 0, all layers up to it. So every layer but the first is predicted once per step.
  struct Range {
    int first, end;
  };
  Range targets(int layer) const {
    if (depth_ <= 0) return {0, 0};
    const int last = layer + depth_;
    return {std::min(layer == 0 ? 1 : last, layers_), std::min(last + 1, layers_)};
  }

  // Maximum rows per (sequence, KV head) of a prediction: the bytes that the link moves while one
  // layer computes, in equal shares, since each layer is predicted once. Unknown rates (0) set no
  // limit.
  static int32_t rows_per_head(double link_bytes_per_second, double compute_seconds,
                               int64_t row_bytes, int64_t heads, int32_t most) {
    if (most <= 0 || heads <= 0) return 0;
    if (!(link_bytes_per_second > 0) || !(compute_seconds > 0)) return most;
    const double rows = link_bytes_per_second * compute_seconds / static_cast<double>(row_bytes) /
                        static_cast<double>(heads);
    return rows < most ? static_cast<int32_t>(rows) : most;
  }

 private:
  int layers_;
  int depth_;
};

}  // namespace fasa
