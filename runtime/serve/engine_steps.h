// The steps of active requests: one token for each decoding sequence, prompts by chunks or pieces,
// and sampling.
#pragma once

#include <tbb/task_arena.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/generation/batch_times.h"
#include "runtime/llm/generation/mtp_cache.h"
#include "runtime/serve/engine_options.h"
#include "runtime/serve/engine_status.h"
#include "runtime/serve/prefill_budget.h"
#include "runtime/serve/prompt_reader.h"
#include "runtime/serve/prompt_turns.h"
#include "runtime/serve/served_choices.h"
#include "runtime/serve/session_memory.h"
#include "runtime/text/tokenizer.h"

namespace fasa::serve {

class EngineSteps {
 public:
  // All references must outlive it. `tokenizer` may be null: answers then have no text. `mtp`: for
  // drafts, may be null. Throws BudgetError.
  EngineSteps(Model& model, Runtime& runtime, const text::Tokenizer* tokenizer,
              const EngineOptions& options, ServedChoices& choices, PromptReader& reader,
              SessionMemory& memory, EngineStatus& stats, MtpCache* mtp);

  // Throws UsageError if the request's options for its answer are not valid.
  std::unique_ptr<Answer> new_answer(const GenerationRequest& request, int choice) const;
  // Each runs one step (of prompts: or pieces of one), or nothing if there is no such work.
  void decode();
  void prefill();
  // How long a piece of other work may take between two decode steps.
  double piece_seconds() const;

 private:
  // The prompts that can be computed now, oldest first.
  struct Prompts {
    std::vector<ActiveChoice*> choices;
    std::vector<PromptTurns::Prompt> turns;  // of each
    bool others = false;                     // sequences decode beside them
    int chunk = 0;                           // tokens of a step
  };
  struct Prefill {
    std::vector<ActiveChoice*> batch;
    std::vector<int> counts;  // tokens of each choice
    int64_t tokens = 0;       // in all
    double owed = 0;          // to the oldest prompt, after the step
    double read_back = 0;     // seconds, see SequenceInfo::read_back_seconds
  };
  struct DecodeStep {
    std::vector<ActiveChoice*> batch;
    std::vector<int> counts;  // tokens of each choice, drafts included
    std::vector<std::span<const int32_t>> drafts;
    bool one_each() const;
    float* states = nullptr;  // of all tokens, if sources of drafts read them
    bool has_drafts() const;
    // Whether all tokens have logits.
    bool all_logits() const { return has_drafts() || states != nullptr; }
    size_t rows_of(size_t i) const;  // of logits, of choice i
    size_t rows() const;
  };
  struct StepEnd {
    std::chrono::steady_clock::time_point at;
    double prompt_seconds;  // of all work on prompts before
  };
  std::vector<ActiveChoice*> decoding() const;
  DecodeStep next_decode() const;
  void add_known(DecodeStep& step) const;
  void add_drafts(DecodeStep& step) const;
  static void append_text(ActiveChoice& one);
  void hand_over_states(const DecodeStep& step, std::span<const int> kept) const;
  void begin_audit(const DecodeStep& step);
  void end_audit(ActiveChoice& active, std::span<const float> logits, double seconds);
  void decode_step(const DecodeStep& step);
  void choose_tokens(const DecodeStep& step, std::span<const float> logits);
  std::span<const float> run_drafts(const DecodeStep& step, std::vector<int>* kept);
  int take_drafts(ActiveChoice& active, std::span<const int32_t> drafts,
                  std::span<const float> logits, size_t vocab);
  Prompts prompts() const;
  void count_time_between(std::span<ActiveChoice* const> batch);
  ActiveChoice* next_in_pieces(const Prompts& prompts);
  void read_pieces(ActiveChoice& active, const Prompts& prompts);
  Prefill next_prefill(Prompts prompts) const;
  void prefill_step(const Prompts& prompts, const Prefill& next);
  std::span<const float> run_step(std::span<ActiveChoice* const> batch, std::span<const int> counts,
                                  StepMode mode);
  static std::future<void> prepare_masks(std::span<ActiveChoice* const> batch);
  void computed(ActiveChoice& active, int count, StepMode mode, std::span<const float> logits);
  void tell_progress(const ActiveChoice& active) const;
  void start_choices(ActiveChoice& active, std::span<const float> logits);
  void sample(ActiveChoice& active, std::span<const float> logits);

  Model& model_;
  Runtime& runtime_;
  const text::Tokenizer* const tokenizer_;
  ServedChoices& choices_;
  PromptReader& reader_;
  SessionMemory& memory_;
  EngineStatus& stats_;
  MtpCache* const mtp_;
  tbb::task_arena choosers_;
  PrefillBudget prefill_budget_;
  PromptTurns prompt_turns_;
  BatchTimes decode_times_;
  std::optional<StepEnd> last_decode_;  // none: nothing was decoding since
};

}  // namespace fasa::serve
