// The steps of those who are served: one token each of those who decode, a chunk of prompts, and what
// the model answers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/model.h"
#include "runtime/serve/engine_options.h"
#include "runtime/serve/engine_status.h"
#include "runtime/serve/prefill_budget.h"
#include "runtime/serve/served_choices.h"
#include "runtime/serve/session_memory.h"
#include "runtime/text/tokenizer.h"

namespace fasa::serve {

class EngineSteps {
 public:
  // References: all outlive it. `tokenizer` may be null: answers have no text then. Throws
  // BudgetError.
  EngineSteps(Model& model, Runtime& runtime, const text::Tokenizer* tokenizer,
              const EngineOptions& options, ServedChoices& choices, SessionMemory& memory,
              EngineStatus& stats);

  // Throws UsageError for what the request asks of its answers.
  std::unique_ptr<Answer> new_answer(const GenerationRequest& request, int choice) const;
  // A step of those who decode, one of prompts; nothing where there are none.
  void decode();
  void prefill();

 private:
  struct Prefill {
    std::vector<ActiveChoice*> batch;
    std::vector<int> counts;  // tokens of each
    int64_t tokens = 0;       // of all
  };
  std::vector<ActiveChoice*> decoding() const;
  std::vector<int> decode_counts(std::span<ActiveChoice* const> batch) const;
  Prefill next_prefill() const;
  std::span<const float> run_step(std::span<ActiveChoice* const> batch, std::span<const int> counts,
                                  StepMode mode);
  void computed(ActiveChoice& active, int count, StepMode mode, std::span<const float> logits);
  void start_choices(ActiveChoice& active, std::span<const float> logits);
  void sample(ActiveChoice& active, std::span<const float> logits);

  Model& model_;
  Runtime& runtime_;
  const text::Tokenizer* const tokenizer_;
  ServedChoices& choices_;
  SessionMemory& memory_;
  EngineStatus& stats_;
  PrefillBudget prefill_budget_;
};

}  // namespace fasa::serve
