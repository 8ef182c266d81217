// A sequence that takes a prompt at once and everything after it token by token, so that what
// follows the prompt goes through the selection.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/model.h"
#include "runtime/llm/owned_sequence.h"

namespace fasa {

class SharedPrompt;  // runtime/eval/shared_prompt.h

constexpr int kEvalPrefillChunk = 512;

class DecodeRun {
 public:
  // Reserves room for `tokens` tokens in all. Where the settings fetch ahead by query, `model` is
  // asked for queries from then on. Throws BudgetError.
  DecodeRun(Model& model, Runtime& runtime, int64_t tokens);
  // A run of its own that begins with the first `tokens` tokens of this one's.
  DecodeRun(const DecodeRun& other, int64_t tokens);

  // `shared`, where it is not null, gives what it has of another runtime.
  void prefill(std::span<const int32_t> ids, SharedPrompt* shared = nullptr);
  // Logits of what follows `id`, valid until the model's next step.
  std::span<const float> step(int32_t id);
  // Logits of what follows each of them, [ids, vocab], as steps one by one give them. No more ids
  // than most().
  std::span<const float> steps(std::span<const int32_t> ids);
  int most() const { return runtime().max_decoded(sequence_.id()); }
  int64_t length() const { return runtime().length(sequence_.id()); }
  Model& model() const { return model_; }
  Runtime& runtime() const { return sequence_.runtime(); }
  SequenceId id() const { return sequence_.id(); }

 private:
  Model& model_;
  OwnedSequence sequence_;
};

}  // namespace fasa
