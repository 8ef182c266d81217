#include "runtime/serve/engine_steps.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/error.h"

namespace fasa::serve {

using Clock = std::chrono::steady_clock;

EngineSteps::EngineSteps(Model& model, Runtime& runtime, const text::Tokenizer* tokenizer,
                         const EngineOptions& options, ServedChoices& choices, PromptReader& reader,
                         SessionMemory& memory, EngineStatus& stats)
    : model_(model),
      runtime_(runtime),
      tokenizer_(tokenizer),
      choices_(choices),
      reader_(reader),
      memory_(memory),
      stats_(stats),
      prefill_budget_(options.max_step_seconds, options.prefill_chunk,
                      reader.possible() ? options.idle_step_seconds : PrefillBudget::kNone),
      prompt_turns_(options.prompt_share) {
  const int piece = options.prefill_chunk + (reader.possible() ? OpenPrompt::kFewRows : 0);
  model_.reserve(std::max(piece, options.max_sequences));
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

EngineSteps::Prompts EngineSteps::prompts() const {
  Prompts prompts;
  prompts.others = !decoding().empty();
  for (const auto& one : choices_.active()) {
    if (!one->computes() || one->mode() != StepMode::kPrefill) continue;
    const auto done = reader_.reads(*one) ? static_cast<int64_t>(reader_.done()) : 0;
    prompts.choices.push_back(one.get());
    prompts.turns.push_back({one->prompt_left() - done, one->prefill_left() - done, one->owed});
  }
  if (prompts.choices.empty()) return prompts;
  const SequenceInfo oldest = runtime_.info(*prompts.choices.front()->sequence);
  prompts.chunk = prefill_budget_.chunk(prompts.others, oldest.read_back_seconds);
  return prompts;
}

void EngineSteps::prefill() {
  for (Prompts all = prompts(); !all.choices.empty(); all = prompts()) {
    if (ActiveChoice* const one = next_in_pieces(all)) return read_pieces(*one, all);
    const Prefill next = next_prefill(all);
    try {
      return prefill_step(all, next);
    } catch (const BudgetError& error) {
      memory_.make_room(next.batch, error);
    }
  }
}

// The prompt whose pieces come next; null: a step comes. While a chunk is under way, shorter
// prompts go by steps between its pieces; longer ones wait for its end.
ActiveChoice* EngineSteps::next_in_pieces(const Prompts& prompts) {
  if (!reader_.possible()) return nullptr;
  const size_t first = prompt_turns_.first(prompts.turns, prompts.chunk);
  ActiveChoice& one = *prompts.choices[first];
  if (reader_.reads(one)) return &one;
  const bool fits_step = prompts.turns[first].most <= prompts.chunk;
  if (reader_.in_chunk()) {
    const bool waits = static_cast<double>(prompts.turns[first].left) > reader_.chunk_left();
    return waits && !fits_step ? reader_.choice() : nullptr;
  }
  return !fits_step && reader_.open(one) ? &one : nullptr;
}

void EngineSteps::read_pieces(ActiveChoice& active, const Prompts& prompts) {
  const auto begin = Clock::now();
  const PromptReader::Worked worked = reader_.work(prefill_budget_.slot_seconds(prompts.others),
                                                   prefill_budget_.useful_share(prompts.others));
  stats_.prefill_step_seconds.add(seconds_between(begin, Clock::now()));
  ActiveChoice& oldest = *prompts.choices.front();
  const bool own = &oldest == &active;
  oldest.owed =
      prompt_turns_.owed_after(oldest.owed, own ? worked.tokens : 0, own ? 0 : worked.tokens);
  if (worked.whole) reader_.leave(active);
  if (worked.closed > 0) return computed(active, worked.closed, StepMode::kPrefill, worked.logits);
  tell_progress(active);
}

// With PromptReader no prompt takes only a part of a step beside another: it has pieces.
EngineSteps::Prefill EngineSteps::next_prefill(Prompts prompts) const {
  for (size_t i = 0; i < prompts.choices.size(); ++i) {
    if (reader_.in_chunk() && reader_.reads(*prompts.choices[i])) prompts.turns[i].most = 0;
  }
  const bool whole = !prompts.others || reader_.possible();
  const auto turns = prompt_turns_.next(prompts.turns, prompts.chunk, whole);
  Prefill prefill;
  for (const PromptTurns::Turn& turn : turns) {
    ActiveChoice* const one = prompts.choices[turn.prompt];
    prefill.batch.push_back(one);
    prefill.counts.push_back(turn.tokens);
    prefill.tokens += turn.tokens;
    prefill.read_back += runtime_.info(*one->sequence).read_back_seconds;
  }
  prefill.owed = prompt_turns_.owed_after(prompts.turns, turns);
  return prefill;
}

void EngineSteps::prefill_step(const Prompts& prompts, const Prefill& next) {
  for (const ActiveChoice* one : next.batch) reader_.leave(*one);
  const auto begin = Clock::now();
  const auto logits = run_step(next.batch, next.counts, StepMode::kPrefill);
  const double took = seconds_between(begin, Clock::now());
  prefill_budget_.prefilled(next.tokens, took, next.read_back);
  stats_.prefill_step_seconds.add(took);
  prompts.choices.front()->owed = next.owed;
  const size_t vocab = logits.size() / next.batch.size();
  for (size_t i = 0; i < next.batch.size(); ++i) {
    computed(*next.batch[i], next.counts[i], StepMode::kPrefill, logits.subspan(i * vocab, vocab));
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
    tell_progress(active);
    if (active.at_prompt() || active.next) return;  // prompt or recomputed tokens remain
    if (active.choice == 0) start_choices(active, logits);
  }
  sample(active, logits);
}

void EngineSteps::tell_progress(const ActiveChoice& active) const {
  if (!active.answer->tokens().empty()) return;
  const auto done = reader_.reads(active) ? static_cast<int64_t>(reader_.done()) : 0;
  active.request.observer->on_prefill(active.log.size() + done, std::ssize(active.wanted),
                                      active.cached);
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
