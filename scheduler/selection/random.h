// Random tokens, drawn anew for each step, layer and head from selection.seed and their indices:
// the lower bound of every comparison.
#pragma once

#include <cstdint>

#include "scheduler/selection/token_selection.h"

namespace fasa {

class RandomSelection : public ScoredSelection {
 public:
  explicit RandomSelection(const SelectionOptions& options) : seed_(options.seed) {}

 protected:
  TokenScores score(const HeadStep& step) const override {
    TokenScores scores(1, step.plan.visible());
    uint64_t place = mixed(seed_);
    for (const int part : {step.params.step.attending_layer(), step.kv_head, step.plan.end}) {
      place = mixed(place + static_cast<uint64_t>(part));
    }
    for (int t = 0; t < scores.tokens; ++t) {
      const uint64_t drawn = mixed(place + static_cast<uint64_t>(step.plan.first + t));
      scores.values[static_cast<size_t>(t)] = static_cast<float>(drawn >> 40);  // exact
    }
    return scores;
  }

 private:
  // Splitmix64.
  static uint64_t mixed(uint64_t value) {
    value += 0x9e3779b97f4a7c15ull;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
  }

  uint64_t seed_;
};

}  // namespace fasa
