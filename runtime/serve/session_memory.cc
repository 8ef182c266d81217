#include "runtime/serve/session_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/llm/generation/owned_sequence.h"
#include "runtime/serve/prefill_budget.h"

namespace fasa::serve {

using Clock = std::chrono::steady_clock;

SessionMemory::SessionMemory(Runtime& runtime, const EngineOptions& options, ServedChoices& choices,
                             PromptReader& reader, EngineInbox& inbox, EngineStatus& stats)
    : runtime_(runtime),
      options_(options),
      choices_(choices),
      reader_(reader),
      inbox_(inbox),
      stats_(stats),
      cache_(runtime, options.log_bytes) {
  if (!options.sessions) return;
  suspension_.emplace(*options.sessions, runtime, cache_);
  for (const CachedSession& cached : cache_.sessions()) found_.push_back(cached.conversation);
}

void SessionMemory::admit_waiting() {
  if (cache_.evicting()) return;  // for the first that waits, or for active ones
  for (const auto& one : choices_.active()) one->waits.memory = false;
  if (choices_.active().empty()) choices_.set_memory_pressure(false);
  while (!choices_.waiting().empty() && !choices_.under_memory_pressure() &&
         static_cast<int>(choices_.active().size()) < options_.max_sequences) {
    ActiveChoice& first = *choices_.waiting().front();
    if (!admit(first)) {
      if (!first.finished) return;  // the first waits for memory that running requests hold
      choices_.end_first_waiting();
    } else {
      stats_.queue_seconds.add(seconds_between(first.submitted, Clock::now()));
      if (first.answer->tokens().empty()) {
        first.request.observer->on_prefill(first.log.size(), first.wanted.size(), first.cached);
      }
      choices_.admit_first();
    }
  }
}

// Returns false if there is no memory yet, or if the request failed because it can never fit.
bool SessionMemory::admit(ActiveChoice& active) {
  for (;;) {
    try {
      place(active);
      return true;
    } catch (const BudgetError& error) {
      if (evict_one()) {
        if (cache_.evicting()) return false;
        continue;
      }
      if (reader_.give_up()) continue;
      choices_.set_memory_pressure(true);
      if (choices_.active().empty()) choices_.fail(active, error.kind(), error.what());
      return false;
    } catch (const UsageError& error) {
      choices_.fail(active, error.kind(), error.what());
      return false;
    }
  }
}

// Tells, and counts, what the prompt lost of what was computed before. Once for a request.
void SessionMemory::tell_recomputed(ActiveChoice& active, const PrefixMatch& match) {
  if (std::exchange(active.placed_before, true)) return;
  const int64_t cached = match.suspended ? match.suspended->tokens : match.cached;
  const int64_t last = active.wanted.size() - 1;  // computed in any case
  const int64_t known = std::min(match.known.size(), last);
  const int64_t held = std::clamp(match.held, cached, std::max(cached, known));
  Recomputed lost{};
  lost[static_cast<size_t>(active.request.parting)] =
      std::clamp<int64_t>(active.request.parted_tokens, 0, std::max<int64_t>(0, last - known));
  lost[static_cast<size_t>(Loss::kState)] = held - cached;
  lost[static_cast<size_t>(Loss::kEvicted)] = std::max<int64_t>(0, known - held);
  for (size_t i = 0; i < lost.size(); ++i) stats_.recomputed_tokens[i] += lost[i];
  active.request.observer->on_recomputed(lost);
}

// Creates a sequence with memory for the prompt and the beginning of an answer.
void SessionMemory::place(ActiveChoice& active) {
  constexpr int64_t kAnswer = 64;
  PrefixMatch match = cache_.find(active.request.salt, active.wanted.ids(), active.wanted.known());
  TokenLog log;
  for (int64_t i = 0; i < match.cached; ++i) {
    log.append(match.known.ids()[static_cast<size_t>(i)], match.known.computed(i));
  }
  // The cached sequence itself, or a fork, whose memory others hold too.
  const auto& sessions = std::as_const(cache_).sessions();
  const bool taken = std::any_of(sessions.begin(), sessions.end(), [&](const CachedSession& one) {
    return one.id == match.source && one.log().size() == match.cached;
  });
  const SequenceId sequence =
      match.source ? cache_.take(*match.source, match.cached) : runtime_.create();
  OwnedSequence owned(runtime_, sequence);
  // A session is stored on disk whole; on resume it is truncated as Runtime::create() specifies.
  if (!match.source && !options_.sessions)
    runtime_.set_rollback_tokens(sequence, options_.rollback_tokens);
  if (match.suspended) {  // the disk returns whole pages
    log.truncate(log.size() / kPageTokens * kPageTokens);
    runtime_.truncate(sequence, log.size());
  }
  const int64_t tokens = active.wanted.size();
  try {
    runtime_.reserve(sequence, tokens + std::min(active.request.answer.max_tokens, kAnswer),
                     options_.prefill_chunk);
  } catch (const BudgetError&) {
    if (log.size() > 0 && taken) {
      cache_.insert(
          {.salt = active.request.salt, .title = active.request.title, .log = std::move(log)},
          owned.release());
    }
    throw;
  }
  const int64_t user = active.request.user_tokens;
  if (user > 0) runtime_.hold_resume_point(sequence, user);
  active.sequence = owned.release();
  active.cached = match.suspended ? match.suspended->tokens : match.cached;
  active.wanted.set_known(match.known, options_.sparse_turn_tokens);
  active.log = std::move(log);
  const bool sparse = active.wanted.decodes_from(active.cached);
  const bool lacks_rows = runtime_.info(sequence).pending;
  active.waits.rows = lacks_rows && !sparse;
  if (match.suspended) {
    active.waits.resuming =
        Resuming{*match.suspended, sparse && !lacks_rows && runtime_.traits().loads_on_demand};
  }
  stats_.cached_tokens += static_cast<uint64_t>(active.cached);
  tell_recomputed(active, match);
}

// Frees cached sessions first, then a prompt's chunk, then memory of drafts, then preempts the
// youngest request, so that the oldest always progresses.
void SessionMemory::make_room(std::span<ActiveChoice* const> batch, const BudgetError& error) {
  if (cache_.evicting() || evict_one()) {
    if (cache_.evicting()) wait_for_memory(batch);
    return;
  }
  if (reader_.give_up() || release_drafts()) return;
  const auto placed = [](const auto& one) { return one->placed() && !one->finished; };
  const auto& active = choices_.active();
  if (std::count_if(active.begin(), active.end(), placed) < 2)
    return choices_.fail(*batch.front(), error.kind(), error.what());
  preempt(**std::find_if(active.rbegin(), active.rend(), placed));
}

// Answers go on without. False: no memory was freed.
bool SessionMemory::release_drafts() {
  bool any = false;
  for (const auto& one : choices_.active()) {
    if (one->drafts && one->drafts->release_memory()) any = true;
  }
  return any;
}

// Lets those wait that have no memory for one more token or, if each alone has it, the youngest.
void SessionMemory::wait_for_memory(std::span<ActiveChoice* const> batch) {
  bool any = false;
  for (ActiveChoice* one : batch) {
    try {
      runtime_.reserve(*one->sequence, one->log.size() + 1, 1);
    } catch (const BudgetError&) {
      any = one->waits.memory = true;
    }
  }
  if (!any) batch.back()->waits.memory = true;
}

// Frees its memory. Its tokens are recomputed, each as before (prefilled or decoded), once memory
// is free.
void SessionMemory::preempt(ActiveChoice& active) {
  ++stats_.preemptions;
  choices_.set_memory_pressure(true);
  step_back(active);
}

void SessionMemory::step_back(ActiveChoice& active) {
  reader_.leave(active);
  runtime_.free(*std::exchange(active.sequence, std::nullopt));
  active.drafts.reset();
  active.waits = {};
  active.owed = 0;
  active.chunk_limit = kMaxChunkTokens;
  active.wanted.recompute(active.log);
  active.log = TokenLog();
  choices_.step_back(active);
  inbox_.count(choices_.active().size(), choices_.waiting().size());
}

// Frees its memory, or lets suspend_some() do that once it has written the session to disk. False:
// no session is left to evict.
bool SessionMemory::evict_one() {
  CachedSession* const least = cache_.cheapest();
  if (least == nullptr) return false;
  ++stats_.evictions;
  least->evicted = suspension_ && !least->suspend_failed;
  if (!least->evicted) cache_.release(*least);
  return true;
}

// --- sessions on disk ---

// Reads the next piece of the first resuming session; other requests run between pieces.
void SessionMemory::resume_next(double seconds) {
  constexpr size_t kLeast = size_t{64} << 10, kMost = size_t{16} << 20;
  const auto reading = std::find_if(choices_.active().begin(), choices_.active().end(),
                                    [](const auto& one) { return one->reads(); });
  if (reading == choices_.active().end()) return;
  ActiveChoice& active = **reading;
  if (active.waits.resuming) {
    return resume(active, seconds);
  }
  const auto begin = Clock::now();
  const size_t bytes = reading_.bytes_in(seconds, kLeast, kMost);
  active.waits.rows = !runtime_.exchange().load_more(*active.sequence, bytes);
  if (active.waits.rows) reading_.moved(bytes, begin);
}

void SessionMemory::resume(ActiveChoice& active, double seconds) {
  bool whole = false;
  try {
    whole = suspension_->resume_some(*active.waits.resuming, *active.sequence, seconds);
  } catch (const BudgetError& error) {
    ActiveChoice* const one = &active;
    return make_room({&one, 1}, error);
  }
  const TokenLog& known = active.wanted.known();
  for (int64_t i = active.log.size(); i < runtime_.length(*active.sequence); ++i) {
    active.log.append(known.ids()[static_cast<size_t>(i)], known.computed(i));
  }
  if (!whole) return;
  active.waits.resuming.reset();
  suspension_->count_resumed(active.cached);
}

// Sequences that lost the only copy of some rows are recomputed; those with all rows in memory
// continue.
void SessionMemory::give_up(const LostSession& error) {
  log_warning(fmt::format("{}; the session will be recomputed", error.what()));
  suspension_->give_up(error.session());
  std::vector<ActiveChoice*> losers;
  for (const auto& one : choices_.active()) {
    if (!one->placed() || one->finished) continue;
    const bool lost = runtime_.info(*one->sequence).lost;
    const bool resumes =
        one->waits.resuming && one->waits.resuming->prefix.session == error.session();
    if (lost) losers.push_back(one.get());
    if (resumes) one->waits.resuming.reset();
    if (!lost && !resumes) continue;
    if (!lost) cut_to_resume_point(*one);
    const int64_t cached = lost ? 0 : one->log.size();
    stats_.cached_tokens -= static_cast<uint64_t>(one->cached - cached);
    one->cached = cached;
  }
  for (ActiveChoice* one : losers) step_back(*one);
  release_lost();
}

// A session that was not read to its end may lack its state of layers with linear attention.
void SessionMemory::cut_to_resume_point(ActiveChoice& active) {
  const int64_t point = runtime_.resume_point(*active.sequence, active.log.size());
  if (point == active.log.size()) return;
  runtime_.truncate(*active.sequence, point);
  active.log.truncate(point);
}

// Cached sessions with lost rows keep only the record of how their tokens were computed.
void SessionMemory::release_lost() {
  const auto is_lost = [&](const CachedSession& cached) {
    return cached.sequence && runtime_.info(*cached.sequence).lost;
  };
  auto& cached = cache_.sessions();
  for (;;) {  // releasing one session may remove others
    const auto lost = std::find_if(cached.begin(), cached.end(), is_lost);
    if (lost == cached.end()) return;
    cache_.release(*lost);
  }
}

void SessionMemory::keep_finished() {
  for (const auto& one : choices_.active()) {
    if (!one->finished || !one->placed()) continue;
    reader_.leave(*one);
    cut_to_resume_point(*one);
    const SequenceId sequence = *std::exchange(one->sequence, std::nullopt);
    OwnedSequence owned(runtime_, sequence);
    if (one->log.size() > 0) cache_.insert(one->conversation(), owned.release());
  }
  release_lost();
}

void SessionMemory::suspend_some(double seconds) {
  if (!suspension_) return;
  suspension_->suspend_some(Clock::now(), seconds);
  tell_saved();
}

void SessionMemory::attach(const AttachedRecords& records) {
  CachedSession* const cached = cache_.attach(records.salt, records.ids, records.records);
  if (!records.saved) return;
  if (cached != nullptr) {
    cached->wanted_on_disk = true;
    cached->suspend_failed = false;  // another attempt
  }
  saving_.push_back(records);
}

// A conversation that a request continues meanwhile is not saved.
void SessionMemory::tell_saved() {
  std::erase_if(saving_, [&](const AttachedRecords& one) {
    const CachedSession* const cached = cache_.holder(one.records.back());
    const bool there = cached != nullptr && cached->suspended && !cached->unsaved &&
                       cached->suspended->tokens == cached->log().size();
    const bool waits = cached != nullptr && cached->sequence && !cached->suspend_failed;
    if (there) {
      one.saved(suspension_->bytes(*cached->suspended));
    } else if (!waits) {
      one.saved(std::nullopt);
    }
    return there || !waits;
  });
}

void SessionMemory::publish() {
  if (listed_ != cache_.changes()) list_sessions();
  if (suspension_) stats_.suspension = suspension_->status();
}

void SessionMemory::list_sessions() {
  auto sessions = std::make_shared<std::vector<SessionStatus>>();
  for (const CachedSession& cached : std::as_const(cache_).sessions()) {
    SessionStatus session{.id = cached.id,
                          .salt = cached.conversation.salt,
                          .title = cached.conversation.title,
                          .tokens = cached.log().size(),
                          .suspended_tokens = cached.suspended ? cached.suspended->tokens : 0,
                          .in_memory = cached.sequence.has_value()};
    if (session.in_memory) {
      session.device_bytes = cached.device_bytes;
      session.host_bytes = cached.host_bytes;
    }
    if (cached.suspended) session.disk_bytes = suspension_->bytes(*cached.suspended);
    sessions->push_back(std::move(session));
  }
  stats_.sessions = std::move(sessions);
  listed_ = cache_.changes();
}

std::optional<Clock::time_point> SessionMemory::next_due() const {
  return suspension_ ? suspension_->next_due() : std::nullopt;
}

}  // namespace fasa::serve
