// Who has memory: admission by bytes, what gives way, and sessions on their way to the disk and back.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/llm/owned_sequence.h"
#include "runtime/serve/engine_loop.h"

namespace fasa::serve {

using Clock = std::chrono::steady_clock;

namespace {

// What is known ends in what was generated, or in a turn that was decoded: it is this conversation.
// A beginning that others have too ends in what was prefilled.
bool goes_on(const TokenLog& known) {
  return known.size() > 0 && known.computed(known.size() - 1) == Computed::kDecode;
}

}  // namespace

void EngineLoop::admit_waiting() {
  if (active_.empty()) crowded_ = false;
  while (!waiting_.empty() && !crowded_ &&
         static_cast<int>(active_.size()) < options_.max_sequences) {
    ActiveChoice& first = *waiting_.front();
    if (!admit(first)) {
      if (!first.finished) return;  // it waits for the memory of those that are served
      ended_.splice(ended_.end(), waiting_, waiting_.begin());
    } else {
      numbers_.queue_seconds.add(seconds_between(first.submitted, Clock::now()));
      active_.splice(active_.end(), waiting_, waiting_.begin());
    }
  }
}

// False: there is no memory now, or it was finished with an error because there never will be.
bool EngineLoop::admit(ActiveChoice& active) {
  for (;;) {
    try {
      place(active);
      return true;
    } catch (const BudgetError& error) {
      if (make_room(false)) continue;
      crowded_ = true;
      if (active_.empty()) fail(active, error.kind(), error.what());
      return false;
    } catch (const UsageError& error) {
      fail(active, error.kind(), error.what());
      return false;
    }
  }
}

// A sequence with room for the prompt and the beginning of an answer.
void EngineLoop::place(ActiveChoice& active) {
  constexpr int64_t kAnswer = 64;
  PrefixMatch match = cache_.find(active.request.salt, active.wanted, active.known);
  TokenLog log;
  for (int64_t i = 0; i < match.cached; ++i) {
    log.append(match.known.ids()[static_cast<size_t>(i)], match.known.computed(i));
  }
  const SequenceId sequence =
      match.source ? cache_.take(*match.source, match.cached) : runtime_.create();
  OwnedSequence owned(runtime_, sequence);
  if (match.parked) {  // what comes from the disk comes in whole pages
    log.truncate(log.size() / kPageTokens * kPageTokens);
    runtime_.truncate(sequence, log.size());
  }
  const auto tokens = static_cast<int64_t>(active.wanted.size());
  try {
    runtime_.reserve(sequence, tokens + std::min(active.request.answer.max_tokens, kAnswer),
                     options_.prefill_chunk);
  } catch (const BudgetError&) {
    if (log.size() > 0) {
      cache_.keep({.salt = active.request.salt, .log = std::move(log)}, owned.release());
    }
    throw;
  }
  active.sequence = owned.release();
  active.cached = match.parked ? match.parked->tokens : match.cached;
  if (!active.decodes_turn) {
    active.decodes_turn =
        goes_on(match.known) && tokens - match.known.size() <= options_.sparse_turn_tokens;
  }
  active.known = std::move(match.known);
  active.log = std::move(log);
  const bool sparse = active.decodes_from(active.cached);
  const bool lacks_rows = runtime_.lacks_rows(sequence);
  active.lacks_rows = lacks_rows && !sparse;
  if (match.parked) {
    active.waking = Waking{*match.parked, sparse && !lacks_rows && runtime_.takes_row_sources()};
  }
  numbers_.cached_tokens += static_cast<uint64_t>(active.cached);
}

// Gives up what nobody waits for; while steps are under way then the youngest of those served, so
// that the oldest always gets on. False: there is nothing left to give up.
bool EngineLoop::make_room(bool may_preempt) {
  if (evict_oldest()) return true;
  const auto placed = [](const ActivePtr& one) { return one->placed() && !one->finished; };
  if (!may_preempt || std::count_if(active_.begin(), active_.end(), placed) < 2) return false;
  preempt(**std::find_if(active_.rbegin(), active_.rend(), placed));
  return true;
}

// Its memory goes; its tokens are computed again, each as it was, when there is room.
void EngineLoop::preempt(ActiveChoice& active) {
  ++numbers_.preemptions;
  crowded_ = true;
  step_back(active);
}

void EngineLoop::step_back(ActiveChoice& active) {
  runtime_.free(*std::exchange(active.sequence, std::nullopt));
  active.waking.reset();
  active.lacks_rows = false;
  if (!active.at_prompt()) active.wanted.assign(active.log.ids().begin(), active.log.ids().end());
  if (active.log.size() > active.known.size()) active.known = active.log;
  active.log = TokenLog();
  const auto found = std::find_if(active_.begin(), active_.end(),
                                  [&](const ActivePtr& one) { return one.get() == &active; });
  waiting_.splice(waiting_.begin(), active_, found);
  inbox_.count(active_.size(), waiting_.size());
}

// With a place on disk for it, it is there before its memory is another's.
bool EngineLoop::evict_oldest() {
  Kept* const oldest = cache_.oldest_resident();
  if (oldest == nullptr) return false;
  if (parking_) parking_->park(*oldest);
  cache_.release(*oldest);
  ++numbers_.evictions;
  return true;
}

// --- sessions on disk ---

// A piece of the first that wakes; the others that are served go on before the next.
void EngineLoop::wake_step() {
  constexpr size_t kBytes = size_t{16} << 20;
  const auto waking = std::find_if(active_.begin(), active_.end(), [](const ActivePtr& one) {
    return one->placed() && !one->finished && !one->computes();
  });
  if (waking == active_.end()) return;
  ActiveChoice& active = **waking;
  if (active.waking) {
    wake(active);
  } else {
    active.lacks_rows = !runtime_.fetch_rows(*active.sequence, kBytes);
  }
}

void EngineLoop::wake(ActiveChoice& active) {
  try {
    parking_->wake_some(*active.waking, *active.sequence);
  } catch (const BudgetError& error) {
    if (!make_room(true)) fail(active, error.kind(), error.what());
    if (!active.waking) return;  // it gave way itself
  }
  for (int64_t i = active.log.size(); i < runtime_.length(*active.sequence); ++i) {
    active.log.append(active.known.ids()[static_cast<size_t>(i)], active.known.computed(i));
  }
  if (active.log.size() < active.waking->prefix.tokens) return;
  active.waking.reset();
  parking_->count_woken(active.cached);
}

// Who had rows of it on the disk only is computed again; who has them in memory goes on.
void EngineLoop::give_up(const LostSession& error) {
  log_warning(fmt::format("{}; it is computed again", error.what()));
  parking_->give_up(error.session());
  std::vector<ActiveChoice*> losers;
  for (const ActivePtr& one : active_) {
    if (!one->placed() || one->finished) continue;
    const bool lost = runtime_.lost_rows(*one->sequence);
    const bool wakes = one->waking && one->waking->prefix.session == error.session();
    if (lost) losers.push_back(one.get());
    if (wakes) one->waking.reset();
    if (!lost && !wakes) continue;
    const int64_t cached = lost ? 0 : one->log.size();
    numbers_.cached_tokens -= static_cast<uint64_t>(one->cached - cached);
    one->cached = cached;
  }
  for (ActiveChoice* one : losers) step_back(*one);
  release_lost();
}

// Kept ones that lack rows which can't be had: how they were computed is remembered.
void EngineLoop::release_lost() {
  const auto is_lost = [&](const Kept& kept) {
    return kept.sequence && runtime_.lost_rows(*kept.sequence);
  };
  auto& kept = cache_.kept();
  for (;;) {  // a release may forget others
    const auto lost = std::find_if(kept.begin(), kept.end(), is_lost);
    if (lost == kept.end()) return;
    cache_.release(*lost);
  }
}

void EngineLoop::park_idle() {
  if (parking_) parking_->park_some(Clock::now());
}

std::optional<Clock::time_point> EngineLoop::next_due() const {
  return parking_ ? parking_->next_due() : std::nullopt;
}

}  // namespace fasa::serve
