// Memory of requests: admission by bytes, eviction, and sessions moving to disk and back.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/base/error.h"
#include "runtime/serve/engine_inbox.h"
#include "runtime/serve/engine_options.h"
#include "runtime/serve/engine_status.h"
#include "runtime/serve/prefix_cache.h"
#include "runtime/serve/prompt_reader.h"
#include "runtime/serve/served_choices.h"
#include "runtime/serve/session_suspension.h"

namespace fasa::serve {

class SessionMemory {
 public:
  // References: all outlive it. Throws UsageError for a folder of sessions that cannot be used.
  SessionMemory(Runtime& runtime, const EngineOptions& options, ServedChoices& choices,
                PromptReader& reader, EngineInbox& inbox, EngineStatus& stats);

  // The conversations that were on disk at the start; once.
  std::vector<Conversation> take_found() { return std::exchange(found_, {}); }

  // Those for whom there is memory are served.
  void admit_waiting();
  // A step of `batch` was refused memory. Evicts an idle session; while it is written to disk, the
  // choices that lack memory wait. If none is left, the chunk of a prompt goes, then the youngest
  // active choice is preempted, so that the oldest always makes progress, or the only one fails.
  void make_room(std::span<ActiveChoice* const> batch, const BudgetError& error);
  // Reads the next piece of the first session that resumes, one that takes about `seconds`; other
  // requests run before the one after it.
  void resume_next(double seconds);
  // Caches the sessions of finished requests, for later requests that begin alike.
  void keep_finished();
  // Sequences whose only copy of rows was lost are recomputed; those with all rows in memory
  // continue.
  void give_up(const LostSession& error);
  // Writes a piece of a session that is idle or evicted; see SessionSuspension.
  void suspend_some(double seconds);
  std::optional<std::chrono::steady_clock::time_point> next_due() const;
  // What EngineLoop's callers ask for.
  void forget(uint64_t session) { cache_.forget(session); }
  void attach(const AttachedRecords& records);
  void detach(const std::string& salt, const std::string& record) { cache_.detach(salt, record); }
  void suspend_all() {
    if (suspension_) suspension_->suspend_all();
  }
  void evict_idle() {
    while (evict_one()) continue;
  }
  // Into the stats.
  void publish();

 private:
  bool admit(ActiveChoice& active);
  void place(ActiveChoice& active);
  void tell_recomputed(ActiveChoice& active, const PrefixMatch& match);
  void preempt(ActiveChoice& active);
  void step_back(ActiveChoice& active);
  void cut_to_resume_point(ActiveChoice& active);
  bool evict_one();
  bool release_drafts();
  void wait_for_memory(std::span<ActiveChoice* const> batch);
  void resume(ActiveChoice& active, double seconds);
  void release_lost();
  void tell_saved();
  void list_sessions();

  Runtime& runtime_;
  const EngineOptions& options_;
  ServedChoices& choices_;
  PromptReader& reader_;
  EngineInbox& inbox_;
  EngineStatus& stats_;
  PrefixCache cache_;
  std::optional<SessionSuspension> suspension_;
  std::vector<Conversation> found_;
  std::vector<AttachedRecords> saving_;
  IoRate reading_;       // of rows that running sequences lack
  uint64_t listed_ = 0;  // the cache's changes that stats_.sessions shows
};

}  // namespace fasa::serve
