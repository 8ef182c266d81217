// A prompt that several runtimes of one model use in turn: the model computes it in the first
// runtime, the others copy its rows. Prefill is full attention under every selection, and slices
// are computed from the stored rows, so results equal those of separate prefills bit by bit. Not
// for selections that learn from a prompt's queries.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/eval/decode_run.h"

namespace fasa {

// True if the config's selection depends on the attention of the prompt's queries.
bool learns_from_prompts(const Config& config);

class SharedPrompt {
 public:
  // Copies the tokens `ids` into the empty `run`; false if they are not the stored ones. All
  // runtimes have the same row dtype. Throws BudgetError.
  bool copy_to(DecodeRun& run, std::span<const int32_t> ids) const;
  // Stores `ids`, all tokens of `run`, in a sequence of its runtime, until other tokens are stored
  // or forget() is called. `run` has the rows of all of them.
  void keep(const DecodeRun& run, std::span<const int32_t> ids);
  // Call it before the runtime of the stored sequence is destroyed.
  void forget() { source_.reset(); }

 private:
  std::vector<int32_t> ids_;
  std::optional<DecodeRun> source_;
};

}  // namespace fasa
