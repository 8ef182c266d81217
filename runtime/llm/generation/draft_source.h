// Proposes an answer's next tokens. A decode step computes them with the newest token; a draft that
// the step's own logits confirm saves a step, and the others leave no trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/llm/generation/batch_times.h"

namespace fasa {

class DraftSource {
 public:
  virtual ~DraftSource() = default;

  // The next token of the text.
  virtual void append(int32_t token) = 0;
  virtual size_t size() const = 0;  // tokens of the text
  // Tokens that may follow, at most `most`: as many as pay in a step that has `others` tokens
  // besides the newest of this text. Valid until the next call.
  virtual std::span<const int32_t> propose(int most, int others, const BatchTimes& times) = 0;
  // How many of the proposed tokens were right. Call it once for each proposal.
  virtual void judged(int right) = 0;

  // Reserves memory for a text of so many tokens; without it there may be no drafts.
  virtual void reserve(int64_t) {}
  // Device memory for the hidden states of a step of so many tokens (ForwardOptions::states); null:
  // it reads none.
  virtual float* step_states(int) { return nullptr; }
  // The model computed the next `tokens` tokens of the text, which append() has named; `states` are
  // theirs, if it reads any; null: they were lost.
  virtual void computed(float*, int) {}
  // Frees device memory, if it has some: it makes no more drafts then. Returns whether it had.
  virtual bool release_memory() { return false; }
};

}  // namespace fasa
