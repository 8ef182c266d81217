// Which layers are looked ahead at, and how much may be fetched for each. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fasa {

// A step's share of the link.
struct PrefetchPlan {
  int depth = 0;     // layers ahead, 0 = no predictions
  int32_t rows = 0;  // per sequence and KV head, at most

  bool on() const { return depth > 0 && rows > 0; }
};

class PrefetchPlanner {
 public:
  PrefetchPlanner(int layers, int depth) : layers_(layers), depth_(depth) {}

  // Layers [first, end) to predict while `layer` computes: the one `depth` layers on; from layer 0
  // all up to there too, so that every layer but the first is predicted exactly once a step.
  struct Range {
    int first, end;
  };
  Range targets(int layer) const {
    if (depth_ <= 0) return {0, 0};
    const int last = layer + depth_;
    return {std::min(layer == 0 ? 1 : last, layers_), std::min(last + 1, layers_)};
  }

  // A layer's predictions in rows per (sequence, KV head): what the link moves while a layer
  // computes, for every layer is predicted once, in equal shares, so that no sequence takes
  // another's. Unknown rates (0) do not bound.
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
