#include "runtime/serve/engine_steps.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/error.h"

namespace fasa::serve {

using Clock = std::chrono::steady_clock;

EngineSteps::EngineSteps(Model& model, Runtime& runtime, const text::Tokenizer* tokenizer,
                         const EngineOptions& options, ServedChoices& choices,
                         SessionMemory& memory, EngineStatus& stats)
    : model_(model),
      runtime_(runtime),
      tokenizer_(tokenizer),
      choices_(choices),
      memory_(memory),
      stats_(stats),
      prefill_budget_(options.max_step_seconds, options.prefill_chunk),
      prompt_turns_(options.prompt_share) {
  model_.reserve(std::max(options.prefill_chunk, options.max_sequences));
}

std::unique_ptr<Answer> EngineSteps::new_answer(const GenerationRequest& request,
                                                int choice) const {
  AnswerOptions options = request.answer;
  options.sampling.seed += static_cast<uint64_t>(choice);
  return std::make_unique<Answer>(options, model_.config().eos_ids, tokenizer_, request.prompt);
}

std::vector<ActiveChoice*> EngineSteps::decoding() const {
  std::vector<ActiveChoice*> batch;
  for (const auto& one : choices_.active()) {
    if (one->computes() && one->mode() == StepMode::kDecode) {
      batch.push_back(one.get());
    }
  }
  return batch;
}

// One token per choice. Prompts being decoded take more if the runtime allows it, up to a prefill
// chunk in all.
std::vector<int> EngineSteps::decode_counts(std::span<ActiveChoice* const> batch) const {
  std::vector<int> counts(batch.size(), 1);
  const bool others =
      std::any_of(batch.begin(), batch.end(), [](const auto* one) { return !one->at_prompt(); });
  int64_t left = prefill_budget_.chunk(others) - static_cast<int64_t>(batch.size());
  for (size_t i = 0; i < batch.size() && left > 0; ++i) {
    if (!batch[i]->at_prompt()) continue;
    const int64_t most =
        std::min<int64_t>(batch[i]->decode_left(), runtime_.info(*batch[i]->sequence).max_decoded);
    counts[i] += static_cast<int>(std::min(most - 1, left));
    left -= counts[i] - 1;
  }
  return counts;
}

double EngineSteps::piece_seconds() const {
  return prefill_budget_.piece_seconds(!decoding().empty());
}

void EngineSteps::decode() {
  std::vector<ActiveChoice*> batch = decoding();
  bool scarce = false;
  while (!batch.empty()) {
    const std::vector<int> counts =
        scarce ? std::vector<int>(batch.size(), 1) : decode_counts(batch);
    const bool one_each = std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; });
    try {
      const auto begin = Clock::now();
      const auto logits = run_step(batch, counts, StepMode::kDecode);
      const double took = seconds_between(begin, Clock::now());
      if (one_each) prefill_budget_.decoded(took);
      stats_.decode_step_seconds.add(took);
      const size_t vocab = logits.size() / batch.size();
      // Sampling may start further choices; this batch does not include them.
      for (size_t i = 0; i < batch.size(); ++i) {
        computed(*batch[i], counts[i], StepMode::kDecode, logits.subspan(i * vocab, vocab));
      }
      return;
    } catch (const BudgetError& error) {
      // Several tokens of a sequence take more scratch than one by one, as they came first.
      scarce = !one_each;
      if (one_each) memory_.make_room(batch, error);
    }
    batch = decoding();
  }
}

// Beside streams a chunk is short and always filled.
EngineSteps::Prefill EngineSteps::next_prefill() const {
  const bool others = !decoding().empty();
  std::vector<ActiveChoice*> choices;
  std::vector<PromptTurns::Prompt> prompts;
  for (const auto& one : choices_.active()) {
    if (!one->computes() || one->mode() != StepMode::kPrefill) continue;
    choices.push_back(one.get());
    prompts.push_back({one->prompt_left(), one->prefill_left(), one->owed});
  }
  Prefill prefill;
  if (!choices.empty()) prefill.oldest = choices.front();
  const double read_back =
      choices.empty() ? 0 : runtime_.info(*prefill.oldest->sequence).read_back_seconds;
  const auto turns = prompt_turns_.next(prompts, prefill_budget_.chunk(others, read_back), !others);
  for (const PromptTurns::Turn& turn : turns) {
    prefill.batch.push_back(choices[turn.prompt]);
    prefill.counts.push_back(turn.tokens);
    prefill.tokens += turn.tokens;
    prefill.read_back += runtime_.info(*choices[turn.prompt]->sequence).read_back_seconds;
  }
  prefill.owed = prompt_turns_.owed_after(prompts, turns);
  return prefill;
}

void EngineSteps::prefill() {
  for (Prefill next = next_prefill(); !next.batch.empty(); next = next_prefill()) {
    const auto& batch = next.batch;
    try {
      const auto begin = Clock::now();
      const auto logits = run_step(batch, next.counts, StepMode::kPrefill);
      const double took = seconds_between(begin, Clock::now());
      prefill_budget_.prefilled(next.tokens, took, next.read_back);
      stats_.prefill_step_seconds.add(took);
      next.oldest->owed = next.owed;
      const size_t vocab = logits.size() / batch.size();
      for (size_t i = 0; i < batch.size(); ++i) {
        computed(*batch[i], next.counts[i], StepMode::kPrefill, logits.subspan(i * vocab, vocab));
      }
      return;
    } catch (const BudgetError& error) {
      memory_.make_room(batch, error);
    }
  }
}

// Logits [sequences, vocab], valid until the next step.
std::span<const float> EngineSteps::run_step(std::span<ActiveChoice* const> batch,
                                             std::span<const int> counts, StepMode mode) {
  std::vector<StepSequence> parts;
  std::vector<int32_t> tokens;
  bool any_ends = false;
  for (size_t i = 0; i < batch.size(); ++i) {
    const ActiveChoice& active = *batch[i];
    parts.push_back({*active.sequence, counts[i], mode});
    for (int t = 0; t < counts[i]; ++t) tokens.push_back(active.token(active.log.size() + t));
    any_ends |= active.log.size() + counts[i] >= static_cast<int64_t>(active.wanted.size());
  }
  return model_.step(runtime_, tokens, parts, {.no_logits = !any_ends});
}

// Called after `count` more tokens of the choice were cached; `logits` follow the last one.
void EngineSteps::computed(ActiveChoice& active, int count, StepMode mode,
                           std::span<const float> logits) {
  const Computed how = mode == StepMode::kDecode ? Computed::kDecode : Computed::kPrefill;
  const bool was_prompt = active.at_prompt();
  for (int i = 0; i < count; ++i) active.log.append(active.token(active.log.size()), how);
  if (active.log.size() == active.request.history_tokens) {
    runtime_.mark_resume_point(*active.sequence);
  }
  if (was_prompt) {
    if (active.answer->tokens().empty()) {
      active.request.observer->on_prefill(
          active.log.size(), static_cast<int64_t>(active.wanted.size()), active.cached);
    }
    if (active.at_prompt() || active.next) return;  // prompt or recomputed tokens remain
    if (active.choice == 0) start_choices(active, logits);
  }
  sample(active, logits);
}

// The choices after the first share the prompt.
void EngineSteps::start_choices(ActiveChoice& active, std::span<const float> logits) {
  for (int choice = 1; choice < active.request.choices; ++choice) {
    auto other = std::make_unique<ActiveChoice>();
    other->id = active.id;
    other->choice = choice;
    other->request = active.request;
    other->answer = new_answer(other->request, choice);
    other->wanted = active.wanted;
    other->known = active.log;
    other->decodes_turn = active.decodes_turn;
    other->stops_at_marks = active.stops_at_marks;
    other->log = active.log;
    other->submitted = active.submitted;
    other->last_token = active.last_token;
    other->sequence = runtime_.fork(*active.sequence, active.log.size());
    choices_.active().push_back(std::move(other));
    sample(*choices_.active().back(), logits);
  }
}

void EngineSteps::sample(ActiveChoice& active, std::span<const float> logits) {
  Answer& answer = *active.answer;
  const size_t before = answer.tokens().size();
  bool goes_on = false;
  try {
    goes_on = answer.take(logits);
  } catch (const InputError& error) {  // from the choice's grammar; other choices continue
    return choices_.fail(active, error.kind(), error.what());
  }
  if (answer.tokens().size() > before) {
    const auto now = Clock::now();
    (before == 0 ? stats_.first_token_seconds : stats_.inter_token_seconds)
        .add(seconds_between(active.last_token, now));
    active.last_token = now;
    ++stats_.generated_tokens;
  }
  active.request.observer->on_token(active.choice, answer);
  if (!goes_on) return choices_.finish(active);
  active.next = answer.tokens().back();
}

}  // namespace fasa::serve
