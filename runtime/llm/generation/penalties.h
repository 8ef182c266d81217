// Bias and penalties applied to one sequence's logits.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>

#include "runtime/llm/generation/sampling.h"

namespace fasa {

class Penalties {
 public:
  explicit Penalties(const Sampling& sampling) : sampling_(sampling) {}

  // Adds tokens of the prompt; only the repetition penalty counts them.
  void see_prompt(std::span<const int32_t> ids);
  void see_generated(int32_t id);
  // Whether apply() would change anything.
  bool any() const;
  // Logits [vocab]; ids beyond it are ignored.
  void apply(std::span<float> logits) const;

 private:
  void remember(int32_t id);

  const Sampling& sampling_;
  std::deque<int32_t> last_;          // of the repetition penalty's window, if it has one
  std::map<int32_t, int> in_window_;  // id -> count in last_
  std::map<int32_t, int> generated_;  // id -> count; 0: only in the prompt
};

}  // namespace fasa
