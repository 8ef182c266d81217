#include "runtime/serve/engine_steps.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/parallel.h"
#include "runtime/llm/generation/open_drafts.h"

namespace fasa::serve {

using Clock = std::chrono::steady_clock;

EngineSteps::EngineSteps(Model& model, Runtime& runtime, const text::Tokenizer* tokenizer,
                         const EngineOptions& options, ServedChoices& choices, PromptReader& reader,
                         SessionMemory& memory, EngineStatus& stats, MtpCache* mtp)
    : model_(model),
      runtime_(runtime),
      tokenizer_(tokenizer),
      choices_(choices),
      reader_(reader),
      memory_(memory),
      stats_(stats),
      mtp_(mtp),
      choosers_(options.threads > 0 ? options.threads : tbb::task_arena::automatic),
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

bool EngineSteps::DecodeStep::one_each() const {
  return std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; });
}

size_t EngineSteps::DecodeStep::rows_of(size_t i) const {
  return all_logits() ? static_cast<size_t>(counts[i]) : 1;
}

size_t EngineSteps::DecodeStep::rows() const {
  size_t rows = 0;
  for (size_t i = 0; i < batch.size(); ++i) rows += rows_of(i);
  return rows;
}

bool EngineSteps::DecodeStep::has_drafts() const {
  return std::any_of(drafts.begin(), drafts.end(), [](auto some) { return !some.empty(); });
}

// One token per choice, and what else the runtime takes at once.
EngineSteps::DecodeStep EngineSteps::next_decode() const {
  DecodeStep step{.batch = decoding(), .counts = {}, .drafts = {}};
  step.counts.assign(step.batch.size(), 1);
  step.drafts.resize(step.batch.size());
  return step;
}

// Prompts being decoded take more tokens, up to a prefill chunk in all.
void EngineSteps::add_known(DecodeStep& step) const {
  const bool others = std::any_of(step.batch.begin(), step.batch.end(),
                                  [](const auto* one) { return !one->at_prompt(); });
  int64_t left = prefill_budget_.chunk(others) - std::ssize(step.batch);
  for (size_t i = 0; i < step.batch.size() && left > 0; ++i) {
    const ActiveChoice& one = *step.batch[i];
    if (!one.at_prompt()) continue;
    const int64_t most =
        std::min<int64_t>(one.decode_left(), runtime_.info(*one.sequence).max_decoded);
    step.counts[i] += static_cast<int>(std::min(most - 1, left));
    left -= step.counts[i] - 1;
  }
}

// The tokens up to the newest.
void EngineSteps::append_text(ActiveChoice& one) {
  while (std::cmp_less_equal(one.drafts->size(), one.log.size())) {
    const size_t at = one.drafts->size();
    one.drafts->append(std::cmp_less(at, one.log.size()) ? one.log.ids()[at] : *one.next);
  }
}

// Answers take drafts, no more than may follow: memory is there for these.
void EngineSteps::add_drafts(DecodeStep& step) const {
  int tokens = std::accumulate(step.counts.begin(), step.counts.end(), 0);
  for (size_t i = 0; i < step.batch.size(); ++i) {
    ActiveChoice& one = *step.batch[i];
    const AnswerOptions& options = one.request.answer;
    if (options.drafts == DraftKind::kNone || one.at_prompt()) continue;
    if (!one.drafts) one.drafts = open_drafts(options, one.log.ids(), one.log.size(), mtp_);
    if (!one.drafts) continue;
    append_text(one);
    const int64_t most = std::min<int64_t>(runtime_.info(*one.sequence).max_drafted,
                                           options.max_tokens - std::ssize(one.answer->tokens()));
    step.drafts[i] = one.drafts->propose(static_cast<int>(most) - 1, tokens - 1, decode_times_);
    step.counts[i] += static_cast<int>(step.drafts[i].size());
    tokens += static_cast<int>(step.drafts[i].size());
  }
  for (ActiveChoice* const one : step.batch) {
    if (one->drafts && step.states == nullptr) step.states = one->drafts->step_states(tokens);
  }
}

// Gives the states of the tokens that stay to the sources of drafts that read them.
void EngineSteps::hand_over_states(const DecodeStep& step, std::span<const int> kept) const {
  int64_t row = 0;
  for (size_t i = 0; i < step.batch.size(); row += step.counts[i++]) {
    ActiveChoice& one = *step.batch[i];
    if (!one.drafts || one.finished) continue;
    append_text(one);
    float* const states = step.states;
    one.drafts->computed(states == nullptr ? nullptr : states + row * model_.config().hidden,
                         kept[i]);
  }
}

double EngineSteps::piece_seconds() const {
  return prefill_budget_.piece_seconds(!decoding().empty());
}

// A batch of prompts alone begins anew: before it the engine may have been idle.
void EngineSteps::count_time_between(std::span<ActiveChoice* const> batch) {
  const bool goes_on =
      std::any_of(batch.begin(), batch.end(), [](const auto* one) { return !one->at_prompt(); });
  if (last_decode_ && goes_on) {
    const double prompts = stats_.prefill_step_seconds.sum - last_decode_->prompt_seconds;
    const double between = seconds_between(last_decode_->at, Clock::now());
    stats_.between_steps_seconds.add(std::max(0.0, between - prompts));
  }
  last_decode_.reset();
}

void EngineSteps::decode() {
  DecodeStep step = next_decode();
  count_time_between(step.batch);
  for (bool scarce = false; !step.batch.empty(); step = next_decode()) {
    if (!scarce) {
      add_known(step);
      add_drafts(step);
    }
    try {
      return decode_step(step);
    } catch (const BudgetError& error) {
      // Several tokens of a sequence take more scratch than one by one, as they came first.
      scarce = !step.one_each();
      if (step.one_each()) memory_.make_room(step.batch, error);
    }
  }
}

// One a step: the others' tokens wait for it.
void EngineSteps::begin_audit(const DecodeStep& step) {
  for (ActiveChoice* const one : step.batch) {
    if (one->request.answer.audit_every == 0 || one->at_prompt()) continue;
    if (!one->audit) one->audit.emplace(one->request.answer.audit_every);
    if (one->audit->before(model_, runtime_, *one->sequence, *one->next)) return;
  }
}

void EngineSteps::end_audit(ActiveChoice& active, std::span<const float> logits, double seconds) {
  if (!active.audit) return;
  const AuditCounts found = active.audit->after(logits);
  active.audit->decoded(seconds);
  if (found.tokens == 0) return;
  active.answer->count_audit(found);
  stats_.audit += found;
  stats_.audit_kl.add(found.kl_sum);
}

void EngineSteps::decode_step(const DecodeStep& step) {
  begin_audit(step);
  const auto begin = Clock::now();
  std::vector<int> kept = step.counts;
  const auto logits = step.all_logits() ? run_drafts(step, &kept)
                                        : run_step(step.batch, step.counts, StepMode::kDecode);
  const auto end = Clock::now();
  const double took = seconds_between(begin, end);
  const int tokens = std::accumulate(step.counts.begin(), step.counts.end(), 0);
  if (step.one_each()) prefill_budget_.decoded(took);
  decode_times_.measured(tokens, took);
  stats_.decode_step_seconds.of(static_cast<size_t>(tokens)).add(took);
  last_decode_ = {end, stats_.prefill_step_seconds.sum};
  const size_t vocab = logits.size() / step.rows();
  choose_tokens(step, logits);
  size_t row = 0;
  // Sampling may start further choices; this batch does not include them.
  for (size_t i = 0; i < step.batch.size(); ++i) {
    end_audit(*step.batch[i], logits.subspan(row * vocab, vocab), took);
    row += step.rows_of(i);
    if (!step.drafts[i].empty()) continue;
    computed(*step.batch[i], step.counts[i], StepMode::kDecode,
             logits.subspan((row - 1) * vocab, vocab));
  }
  hand_over_states(step, kept);
}

// The tokens of all answers that take one, side by side: each reads a whole vocabulary.
void EngineSteps::choose_tokens(const DecodeStep& step, std::span<const float> logits) {
  struct Row {
    Answer* answer;
    std::span<const float> logits;
  };
  const size_t vocab = logits.size() / step.rows();
  std::vector<Row> rows;
  size_t end = 0;
  for (size_t i = 0; i < step.batch.size(); ++i) {
    end += step.rows_of(i);
    if (!step.drafts[i].empty() || step.batch[i]->at_prompt()) continue;
    rows.push_back({step.batch[i]->answer.get(), logits.subspan((end - 1) * vocab, vocab)});
  }
  if (rows.size() < 2) return;
  const auto choose = [&](size_t i) {
    try {
      rows[i].answer->choose(rows[i].logits);
    } catch (const InputError&) {  // take() throws it again
    }
  };
  execute_in(choosers_, [&] { parallel_for(size_t{0}, rows.size(), choose); });
}

// Choices with drafts take their tokens within the step, which keeps those that were right.
// `kept`: how many tokens of each stay. Returns the logits [tokens, vocab], valid until the next
// step.
std::span<const float> EngineSteps::run_drafts(const DecodeStep& step, std::vector<int>* kept) {
  std::vector<StepSequence> parts;
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < step.batch.size(); ++i) {
    parts.push_back({*step.batch[i]->sequence, step.counts[i], StepMode::kDecode});
    const auto known = step.counts[i] - std::ssize(step.drafts[i]);
    for (int64_t t = 0; t < known; ++t) {
      tokens.push_back(step.batch[i]->token(step.batch[i]->log.size() + t));
    }
    tokens.insert(tokens.end(), step.drafts[i].begin(), step.drafts[i].end());
  }
  std::span<const float> logits;
  std::future<void> masks = prepare_masks(step.batch);
  const auto judge = [&](std::span<const float> all) {
    masks = {};  // waits
    logits = all;
    const size_t vocab = all.size() / tokens.size();
    for (size_t i = 0, row = 0; i < kept->size(); row += static_cast<size_t>(step.counts[i++])) {
      if (step.drafts[i].empty()) continue;
      (*kept)[i] = take_drafts(*step.batch[i], step.drafts[i], all.subspan(row * vocab), vocab);
    }
    return *kept;
  };
  model_.step_with_drafts(runtime_, tokens, parts, judge, step.states);
  return logits;
}

// Returns how many of its tokens stay. `logits`: of these tokens.
int EngineSteps::take_drafts(ActiveChoice& active, std::span<const int32_t> drafts,
                             std::span<const float> logits, size_t vocab) {
  size_t right = 0;
  for (;; ++right) {
    computed(active, 1, StepMode::kDecode, logits.subspan(right * vocab, vocab));
    if (active.finished || right == drafts.size() || *active.next != drafts[right]) break;
  }
  active.drafts->judged(static_cast<int>(right));
  active.answer->count_drafts({.made = std::ssize(drafts), .right = static_cast<int64_t>(right)});
  stats_.drafted_tokens += drafts.size();
  stats_.right_drafts += right;
  return static_cast<int>(right) + 1;
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
  ActiveChoice* const reads[] = {&active};
  std::future<void> masks = prepare_masks(reads);
  const PromptReader::Worked worked = reader_.work(prefill_budget_.slot_seconds(prompts.others),
                                                   prefill_budget_.useful_share(prompts.others));
  masks = {};
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
    any_ends |= active.log.size() + counts[i] >= active.wanted.size();
  }
  const std::future<void> masks = prepare_masks(batch);  // its end waits
  return model_.step(runtime_, tokens, parts, {.no_logits = !any_ends});
}

// Computes, on a thread of its own, what grammars allow after a step that is about to run. Sampling
// computes what this fails to, and reports why.
std::future<void> EngineSteps::prepare_masks(std::span<ActiveChoice* const> batch) {
  std::vector<Answer*> answers;
  for (ActiveChoice* const active : batch) {
    if (active->answer->needs_mask()) answers.push_back(active->answer.get());
  }
  if (answers.empty()) return {};
  try {
    return std::async(std::launch::async, [answers] {
      for (Answer* const answer : answers) answer->prepare();
    });
  } catch (const std::system_error&) {  // there is no thread
    return {};
  }
}

// Called after `count` more tokens of the choice were cached; `logits` follow the last one.
void EngineSteps::computed(ActiveChoice& active, int count, StepMode mode,
                           std::span<const float> logits) {
  const Computed how = mode == StepMode::kDecode ? Computed::kDecode : Computed::kPrefill;
  const bool was_prompt = active.at_prompt();
  if (was_prompt) active.chunk_limit = std::min(active.chunk_limit + count, kMaxChunkTokens);
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
  active.request.observer->on_prefill(active.log.size() + done, active.wanted.size(),
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
    other->wanted.recompute(active.log);
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
