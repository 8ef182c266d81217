// A prompt that several runtimes of one model take one after the other: the model computes it in
// the first of them, the others get copies of its rows. Prefill is full attention whatever the
// selection, and slices are a function of the stored rows, so the bits are those of a prefill of
// one's own. Not for selections that learn from a prompt's queries.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/eval/decode_run.h"

namespace fasa {

// Whether the config's selection remembers what a prompt's queries attended to.
bool learns_from_prompts(const Config& config);

class SharedPrompt {
 public:
  // Gives `run`, which is empty, the tokens `ids`, where they are those that were kept: true then.
  // Rows of all runtimes have one dtype. Throws BudgetError.
  bool copy_to(DecodeRun& run, std::span<const int32_t> ids) const;
  // Keeps the tokens `ids`, all that `run` has, in a sequence of its runtime, until others are kept
  // or forget().
  void keep(const DecodeRun& run, std::span<const int32_t> ids);
  // Before the runtime whose sequence is kept ends.
  void forget() { source_.reset(); }

 private:
  std::vector<int32_t> ids_;
  std::optional<DecodeRun> source_;
};

}  // namespace fasa
