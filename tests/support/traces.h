// Small selection traces made by rule.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "runtime/trace/selection_trace.h"

namespace fasa::testing {

struct TraceSetup {
  int layers = 3;
  int kv_heads = 2;
  int budget = 24;
  int sinks = 2;
  int recent = 4;
  int context = 300;  // of the first step
  int steps = 6;
  int depths = 2;  // predictions 1 to so many layers ahead
  int keeps = 14;  // of the tokens that compete, those that stay from step to step
  int right = 12;  // of them, those that a prediction holds
  uint64_t seed = 1;
};

inline TraceShape shape_of(const TraceSetup& setup) {
  TraceShape shape{.model = "made",
                   .text = "by rule",
                   .layers = setup.layers,
                   .kv_heads = setup.kv_heads,
                   .budget = setup.budget,
                   .sinks = setup.sinks,
                   .recent = setup.recent,
                   .predictions = {}};
  for (int depth = 1; depth <= setup.depths; ++depth) {
    shape.predictions.push_back({.predictor = "next-query",
                                 .depth = depth,
                                 .chunks = 8,
                                 .tokens = setup.budget + setup.budget / 2});
  }
  return shape;
}

class TraceMaker {
 public:
  explicit TraceMaker(const TraceSetup& setup) : setup_(setup), random_(setup.seed) {}

  SelectionTrace make() {
    SelectionTrace trace(shape_of(setup_));
    std::vector<std::vector<int32_t>> last(trace.slots());
    for (int step = 0; step < setup_.steps; ++step) {
      std::vector<std::vector<int32_t>> sets(trace.slots());
      const int context = setup_.context + step;
      for (int layer = 0; layer < setup_.layers; ++layer) {
        for (int head = 0; head < setup_.kv_heads; ++head) {
          const size_t slot = trace.slot(layer, head);
          sets[slot] = joined(last[slot], setup_.keeps, setup_.budget, context);
          for (size_t i = 0; i < trace.shape().predictions.size(); ++i) {
            if (!trace.has_prediction(layer, i)) continue;
            sets[slot + 1 + i] =
                joined(sets[slot], setup_.right, trace.shape().predictions[i].tokens, context);
          }
        }
      }
      trace.add_step(context, sets);
      last = std::move(sets);
    }
    return trace;
  }

 private:
  // `size` positions: sinks, recent, `kept` competing ones of `from`, others at random.
  std::vector<int32_t> joined(const std::vector<int32_t>& from, int kept, int size, int context) {
    const int first = setup_.sinks;
    const int end = context - setup_.recent;
    std::vector<int32_t> competing;
    for (const int32_t position : from) {
      if (position >= first && position < end) competing.push_back(position);
    }
    std::shuffle(competing.begin(), competing.end(), random_);
    competing.resize(std::min<size_t>(competing.size(), static_cast<size_t>(kept)));
    const auto need = static_cast<size_t>(size - first - setup_.recent);
    while (competing.size() < need) {
      const auto position = static_cast<int32_t>(
          first + static_cast<int>(random_() % static_cast<uint64_t>(end - first)));
      if (std::find(competing.begin(), competing.end(), position) == competing.end()) {
        competing.push_back(position);
      }
    }
    for (int position = 0; position < first; ++position) competing.push_back(position);
    for (int position = end; position < context; ++position) competing.push_back(position);
    std::sort(competing.begin(), competing.end());
    return competing;
  }

  TraceSetup setup_;
  std::mt19937_64 random_;
};

inline SelectionTrace make_trace(const TraceSetup& setup = {}) { return TraceMaker(setup).make(); }

}  // namespace fasa::testing
