// A sequence that prefills a prompt and then decodes token by token, so that every later token goes
// through the selection.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/generation/owned_sequence.h"

namespace fasa {

class SharedPrompt;  // runtime/eval/shared_prompt.h

constexpr int kEvalPrefillChunk = 512;

class DecodeRun {
 public:
  // Reserves memory for `tokens` tokens in all. `shared`, if not null, provides rows of the prompt
  // from another runtime, and stores those that it does not have: the run then keeps rows behind
  // every window, because they are copied whole. Throws BudgetError.
  DecodeRun(Model& model, Runtime& runtime, int64_t tokens, SharedPrompt* shared = nullptr);
  // A separate run that begins with the first `tokens` tokens of `other`.
  DecodeRun(const DecodeRun& other, int64_t tokens);

  void prefill(std::span<const int32_t> ids);
  // Prefills tokens behind others; returns the logits of the token after them.
  std::span<const float> read(std::span<const int32_t> ids);
  // Logits of the token after `id`, valid until the model's next step.
  std::span<const float> step(int32_t id);
  // Logits of the tokens after each id, [ids, vocab], equal to those of single steps. At most
  // most() ids.
  std::span<const float> steps(std::span<const int32_t> ids);
  int most() const { return runtime().info(id()).max_decoded; }
  int64_t length() const { return runtime().length(id()); }
  Model& model() const { return model_; }
  Runtime& runtime() const { return sequence_.runtime(); }
  SequenceId id() const { return sequence_.id(); }

 private:
  std::span<const float> run(std::span<const int32_t> ids, StepMode mode,
                             const ForwardOptions& output);

  Model& model_;
  OwnedSequence sequence_;
  SharedPrompt* shared_ = nullptr;
};

}  // namespace fasa
