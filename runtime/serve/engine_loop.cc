#include "runtime/serve/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/llm/owned_sequence.h"

namespace fasa::serve {

using Clock = std::chrono::steady_clock;

EngineLoop::EngineLoop(Model& model, Runtime& runtime, const text::Tokenizer* tokenizer,
                       const EngineOptions& options)
    : model_(model),
      runtime_(runtime),
      tokenizer_(tokenizer),
      options_(options),
      inbox_(options.max_waiting),
      cache_(runtime, options.log_bytes),
      pace_(options.max_step_seconds, options.prefill_chunk) {
  model_.reserve(std::max(options.prefill_chunk, options.max_sequences));
  if (const int ahead = runtime_.estimate_depth(); ahead > 0) {
    model_.reserve_estimates(options.max_sequences, ahead);
    runtime_.set_query_source(model_.query_source());
  }
  if (options.sessions) {
    parking_.emplace(*options.sessions, runtime, cache_);
    for (const Kept& kept : cache_.kept()) found_.push_back(kept.conversation);
  }
  publish();
  thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() {
  inbox_.stop();
  thread_.join();
}

// --- the thread ---

void EngineLoop::run() {
  while (inbox_.wait(!active_.empty() || !waiting_.empty(), next_due())) {
    take_commands();
    try {
      admit_waiting();
      inbox_.count(active_.size(), waiting_.size());
      step();
      park_idle();
    } catch (const DeviceError& error) {
      return end_with(error);
    } catch (const LostSession& error) {
      give_up(error);
    } catch (const std::exception& error) {
      log_warning(fmt::format("a step failed: {}", error.what()));
      fail_all(ErrorKind::kDevice, error.what());
    }
    remove_finished();
    publish();
    tell_ended();
  }
  take_submitted();
  for (auto* list : {&active_, &waiting_}) {
    for (const ActivePtr& one : *list) cancel(*one);
  }
  remove_finished();
  publish();
  tell_ended();
}

// What a lost device computed is not to be trusted, it can't be had back, and nothing is asked of it
// any more, its counters neither.
void EngineLoop::end_with(const DeviceError& error) {
  inbox_.fail(error.what());
  take_submitted();
  fail_all(error.kind(), error.what());
  numbers_.running = 0;
  inbox_.publish(numbers_, 0);
  tell_ended();
}

void EngineLoop::take_commands() {
  const EngineCommands commands = inbox_.take_commands();
  take_submitted();  // after that: what is to be cancelled has been submitted before
  for (const uint64_t id : commands.cancelled) {
    for (auto* list : {&active_, &waiting_}) {
      for (const ActivePtr& one : *list) {
        if (one->id == id) cancel(*one);
      }
    }
  }
  for (const uint64_t id : commands.forgotten) cache_.forget(id);
  if (commands.park && parking_) parking_->park_all();
  while (commands.evict && evict_oldest()) continue;
  remove_finished();
}

void EngineLoop::take_submitted() {
  for (SubmittedRequest& one : inbox_.take_submitted()) {
    auto active = std::make_unique<ActiveChoice>();
    active->id = one.id;
    active->wanted = one.request.prompt;
    active->request = std::move(one.request);
    active->submitted = active->last_token = one.at;
    ++numbers_.requests;
    numbers_.prompt_tokens += active->wanted.size();
    try {
      active->answer = new_answer(active->request, 0);
    } catch (const UsageError& error) {
      fail(*active, error.kind(), error.what());
    }
    waiting_.push_back(std::move(active));
  }
}

std::unique_ptr<Answer> EngineLoop::new_answer(const GenerationRequest& request, int choice) const {
  AnswerOptions options = request.answer;
  options.sampling.seed += static_cast<uint64_t>(choice);
  return std::make_unique<Answer>(options, model_.config().eos_ids, tokenizer_, request.prompt);
}

// --- steps ---

void EngineLoop::step() {
  decode_step();
  wake_step();
  prefill_step();
}

std::vector<ActiveChoice*> EngineLoop::decoding() const {
  std::vector<ActiveChoice*> batch;
  for (const ActivePtr& one : active_) {
    if (one->computes() && one->mode() == StepMode::kDecode) {
      batch.push_back(one.get());
    }
  }
  return batch;
}

// One token each; of a prompt that is decoded more where the runtime takes them, a chunk in all.
std::vector<int> EngineLoop::decode_counts(std::span<ActiveChoice* const> batch) const {
  std::vector<int> counts(batch.size(), 1);
  const bool others =
      std::any_of(batch.begin(), batch.end(), [](const auto* one) { return !one->at_prompt(); });
  int64_t left = pace_.chunk(others) - static_cast<int64_t>(batch.size());
  for (size_t i = 0; i < batch.size() && left > 0; ++i) {
    if (!batch[i]->at_prompt()) continue;
    const int64_t most =
        std::min<int64_t>(batch[i]->decode_left(), runtime_.most_decoded(*batch[i]->sequence));
    counts[i] += static_cast<int>(std::min(most - 1, left));
    left -= counts[i] - 1;
  }
  return counts;
}

void EngineLoop::decode_step() {
  std::vector<ActiveChoice*> batch = decoding();
  while (!batch.empty()) {
    const std::vector<int> counts = decode_counts(batch);
    try {
      const auto begin = Clock::now();
      const auto logits = run_step(batch, counts, StepMode::kDecode);
      const double took = seconds_between(begin, Clock::now());
      const bool one_each = std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; });
      if (one_each) pace_.decoded(took);
      numbers_.decode_step_seconds.add(took);
      const size_t vocab = logits.size() / batch.size();
      // Sampling may start further choices, which leaves this batch as it is.
      for (size_t i = 0; i < batch.size(); ++i) {
        computed(*batch[i], counts[i], StepMode::kDecode, logits.subspan(i * vocab, vocab));
      }
      return;
    } catch (const BudgetError& error) {
      if (!make_room(true)) fail(*batch.front(), error.kind(), error.what());
    }
    batch = decoding();
  }
}

// The oldest prompts first, several in a step where they are short.
EngineLoop::Prefill EngineLoop::next_prefill() const {
  Prefill prefill;
  int left = pace_.chunk(!decoding().empty());
  for (const ActivePtr& one : active_) {
    if (!one->computes() || one->mode() != StepMode::kPrefill || left == 0) continue;
    prefill.batch.push_back(one.get());
    prefill.counts.push_back(static_cast<int>(std::min<int64_t>(left, one->prefill_left())));
    left -= prefill.counts.back();
    prefill.tokens += prefill.counts.back();
  }
  return prefill;
}

void EngineLoop::prefill_step() {
  for (Prefill prefill = next_prefill(); !prefill.batch.empty(); prefill = next_prefill()) {
    const auto& batch = prefill.batch;
    try {
      const auto begin = Clock::now();
      const auto logits = run_step(batch, prefill.counts, StepMode::kPrefill);
      const double took = seconds_between(begin, Clock::now());
      pace_.prefilled(prefill.tokens, took);
      numbers_.prefill_step_seconds.add(took);
      const size_t vocab = logits.size() / batch.size();
      for (size_t i = 0; i < batch.size(); ++i) {
        computed(*batch[i], prefill.counts[i], StepMode::kPrefill,
                 logits.subspan(i * vocab, vocab));
      }
      return;
    } catch (const BudgetError& error) {
      if (!make_room(true)) fail(*batch.front(), error.kind(), error.what());
    }
  }
}

// Logits [sequences, vocab], valid until the next step.
std::span<const float> EngineLoop::run_step(std::span<ActiveChoice* const> batch,
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

// `count` more tokens of the choice are in the cache; `logits` follow the last of them.
void EngineLoop::computed(ActiveChoice& active, int count, StepMode mode,
                          std::span<const float> logits) {
  const Computed how = mode == StepMode::kDecode ? Computed::kDecode : Computed::kPrefill;
  const bool was_prompt = active.at_prompt();
  for (int i = 0; i < count; ++i) active.log.append(active.token(active.log.size()), how);
  if (was_prompt) {
    if (active.answer->tokens().empty()) {
      active.request.observer->on_prefill(
          active.log.size(), static_cast<int64_t>(active.wanted.size()), active.cached);
    }
    if (active.at_prompt() || active.next) return;  // more to compute, or computed again
    if (active.choice == 0) start_choices(active, logits);
  }
  sample(active, logits);
}

// Choices beyond the first share the prompt.
void EngineLoop::start_choices(ActiveChoice& active, std::span<const float> logits) {
  for (int choice = 1; choice < active.request.choices; ++choice) {
    auto other = std::make_unique<ActiveChoice>();
    other->id = active.id;
    other->choice = choice;
    other->request = active.request;
    other->answer = new_answer(other->request, choice);
    other->wanted = active.wanted;
    other->known = active.log;
    other->decodes_turn = active.decodes_turn;
    other->log = active.log;
    other->submitted = active.submitted;
    other->last_token = active.last_token;
    other->sequence = runtime_.fork(*active.sequence, active.log.size());
    active_.push_back(std::move(other));
    sample(*active_.back(), logits);
  }
}

void EngineLoop::sample(ActiveChoice& active, std::span<const float> logits) {
  Answer& answer = *active.answer;
  const size_t before = answer.tokens().size();
  bool goes_on = false;
  try {
    goes_on = answer.take(logits);
  } catch (const InputError& error) {  // its grammar's: the others have theirs
    return fail(active, error.kind(), error.what());
  }
  if (answer.tokens().size() > before) {
    const auto now = Clock::now();
    (before == 0 ? numbers_.first_token_seconds : numbers_.inter_token_seconds)
        .add(seconds_between(active.last_token, now));
    active.last_token = now;
    ++numbers_.generated_tokens;
  }
  active.request.observer->on_token(active.choice, answer);
  if (!goes_on) return finish(active);
  active.next = answer.tokens().back();
}

// --- ends ---

void EngineLoop::finish(ActiveChoice& active) {
  if (active.finished) return;
  active.finished = true;
  switch (active.answer->end()) {
    case AnswerEnd::kMaxTokens:
      ++numbers_.finished_length;
      break;
    case AnswerEnd::kCancelled:
      ++numbers_.finished_cancelled;
      break;
    default:
      ++numbers_.finished_stop;
  }
}

void EngineLoop::cancel(ActiveChoice& active) {
  if (active.finished) return;
  active.answer->cancel();
  finish(active);
}

void EngineLoop::fail(ActiveChoice& active, ErrorKind kind, const std::string& message) {
  if (active.finished) return;
  active.finished = true;
  active.failure = ActiveChoice::Failure{kind, message};
  ++numbers_.finished_error;
}

void EngineLoop::fail_all(ErrorKind kind, const std::string& message) {
  for (auto* list : {&active_, &waiting_}) {
    for (const ActivePtr& one : *list) fail(*one, kind, message);
  }
  remove_finished();
}

// What they leave in the cache is kept for whoever begins alike.
void EngineLoop::remove_finished() {
  for (const ActivePtr& one : active_) {
    if (!one->finished || !one->placed()) continue;
    const SequenceId sequence = *std::exchange(one->sequence, std::nullopt);
    OwnedSequence owned(runtime_, sequence);
    if (one->log.size() > 0) cache_.keep(one->conversation(), owned.release());
  }
  release_lost();
  const size_t before = active_.size();
  for (auto* list : {&active_, &waiting_}) {
    for (auto one = list->begin(); one != list->end();) {
      const auto next = std::next(one);
      if ((*one)->finished) ended_.splice(ended_.end(), *list, one);
      one = next;
    }
  }
  if (active_.size() < before) crowded_ = false;
}

// After publish(): who has an answer finds it counted and its session kept.
void EngineLoop::tell_ended() {
  for (const ActivePtr& one : ended_) {
    RequestObserver& observer = *one->request.observer;
    if (one->failure) {
      observer.on_error(one->failure->kind, one->failure->message);
    } else {
      observer.on_end(one->choice, *one->answer);
    }
  }
  ended_.clear();
}

void EngineLoop::list_sessions() {
  auto sessions = std::make_shared<std::vector<SessionStatus>>();
  for (const Kept& kept : std::as_const(cache_).kept()) {
    SessionStatus session{.id = kept.id,
                          .salt = kept.conversation.salt,
                          .tokens = kept.log().size(),
                          .parked_tokens = kept.parked ? kept.parked->tokens : 0,
                          .resident = kept.sequence.has_value()};
    if (session.resident) {
      session.device_bytes = kept.device_bytes;
      session.host_bytes = kept.host_bytes;
    }
    if (parking_) session.disk_bytes = parking_->bytes(session.parked_tokens);
    sessions->push_back(std::move(session));
  }
  numbers_.sessions = std::move(sessions);
  listed_ = cache_.changes();
}

void EngineLoop::publish() {
  constexpr double kFetchesEvery = 0.5;  // seconds: reading the counters takes a moment
  if (active_.empty() || seconds_between(fetches_read_, Clock::now()) > kFetchesEvery) {
    numbers_.fetches = runtime_.metrics();
    fetches_read_ = Clock::now();
  }
  numbers_.memory = runtime_.memory();
  numbers_.device_memory = model_.device().memory(MemorySpace::kDevice);
  numbers_.host_memory = model_.device().memory(MemorySpace::kHost);
  if (listed_ != cache_.changes()) list_sessions();
  if (parking_) numbers_.parking = parking_->status();
  numbers_.running = static_cast<int>(active_.size());
  inbox_.publish(numbers_, waiting_.size());
}

}  // namespace fasa::serve
