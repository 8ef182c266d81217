// Bias and penalties of one sequence's logits.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "runtime/llm/sampling.h"

namespace fasa {

class Penalties {
 public:
  explicit Penalties(const Sampling& sampling) : sampling_(sampling) {}

  // Tokens of the prompt, which the repetition penalty alone counts.
  void see_prompt(std::span<const int32_t> ids);
  void see_generated(int32_t id);
  // False: apply() would change nothing.
  bool any() const;
  // Logits [vocab]; ids beyond it are left aside.
  void apply(std::span<float> logits) const;

 private:
  const Sampling& sampling_;
  std::map<int32_t, int> generated_;  // id, how often; 0: in the prompt alone
};

}  // namespace fasa
