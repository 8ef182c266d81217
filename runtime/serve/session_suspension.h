// Suspends idle sessions to disk, after a time or when they are evicted, and resumes them for a new
// request. Works in pieces, so that other requests run in between.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/serve/io_rate.h"
#include "runtime/serve/prefix_cache.h"
#include "runtime/serve/read_pool.h"
#include "runtime/serve/resuming.h"
#include "runtime/serve/session_store.h"

namespace fasa::serve {

struct SuspensionOptions {
  std::string dir;
  uint64_t limit_bytes = uint64_t{64} << 30;
  double idle_after = 600;  // seconds
  // See session_fingerprint.h.
  std::string fingerprint;
  SnapshotRule snapshots = {};               // of states on disk; beside them, that of the end
  std::function<void()> before_change = {};  // StoreOptions'
};

// Counts since the start, and the present content of the disk.
struct SuspensionStatus {
  uint64_t suspended = 0, resumed = 0, damaged = 0;  // sessions
  uint64_t resumed_tokens = 0;
  uint64_t disk_bytes = 0, limit_bytes = 0;
  uint64_t read_bytes = 0;
  bool busy = false;  // there is one to write that is due
};

class SessionSuspension {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  // Adds the sessions in the folder to `cache`. Throws UsageError (the folder).
  SessionSuspension(const SuspensionOptions& options, Runtime& runtime, PrefixCache& cache);

  // Writes a piece of a session that is due, one that takes about `seconds` or has one page. A
  // session that is whole on disk frees its memory; so does an evicted one that the disk refuses.
  // Returns true if more pieces are due. Throws DeviceError and LostSession.
  bool suspend_some(Clock::time_point now, double seconds = kNoLimit);
  // The time of the next piece; none if nothing will be due.
  std::optional<Clock::time_point> next_due() const;
  // Makes all sessions due from now on.
  void suspend_all() { all_ = true; }

  // Reads the session's next pages behind those that `sequence` holds whole, then its state: what
  // takes about `seconds`, at least a page. Returns true once the sequence can be continued at
  // resuming.prefix.tokens. Throws LostSession; BudgetError if there is no memory, and nothing has
  // changed then.
  bool resume_some(Resuming& resuming, SequenceId sequence, double seconds = kNoLimit);
  // Its pages are damaged or gone: it is not offered again.
  void give_up(uint64_t session) {
    ++status_.damaged;
    lost(session);
  }
  void count_resumed(int64_t tokens) {
    ++status_.resumed, status_.resumed_tokens += static_cast<uint64_t>(tokens);
  }

  // Deletes forgotten sessions from the disk.
  void drop_unwanted();
  // Writes records that changed since their conversation was suspended.
  void save_records();
  SuspensionStatus status() const;
  // Bytes on disk of the keys, values and states of a session.
  uint64_t bytes(const SuspendedPrefix& suspended) const;

 private:
  CachedSession* next_to_suspend(Clock::time_point now);
  std::optional<Clock::time_point> due_at(const CachedSession& cached) const;
  bool suspend_piece(CachedSession& cached, double seconds);
  void write_pages(const CachedSession& cached, int64_t first, int64_t pages);
  bool write_states(CachedSession& cached, double seconds);
  void require_room(const CachedSession& cached, uint64_t bytes);
  void refused(CachedSession& cached, const char* why);
  void lost(uint64_t session);
  void load_pages(Resuming& resuming, SequenceId sequence, int64_t first, int64_t pages);
  bool load_state(Resuming& resuming, SequenceId sequence, double seconds);

  Runtime& runtime_;
  PrefixCache& cache_;
  const Clock::duration idle_after_;
  const SnapshotRule snapshots_;
  SessionStore store_;
  ReadPool pool_;
  bool all_ = false;
  std::vector<std::byte> page_headers_, rows_, state_;  // on their way
  IoRate reading_, writing_;
  SuspensionStatus status_;
};

}  // namespace fasa::serve
