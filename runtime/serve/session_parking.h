// Idle sessions on disk: out of the runtime's memory when nobody asked for a while or their memory is
// needed, and back when somebody goes on. In pieces, so that what else is served goes on between them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "offload/device.h"
#include "runtime/doors/runtime.h"
#include "runtime/serve/prefix_cache.h"
#include "runtime/serve/sequence_rows.h"
#include "runtime/serve/session_store.h"

namespace fasa::serve {

struct ParkingOptions {
  std::string dir;
  uint64_t limit_bytes = uint64_t{64} << 30;
  double idle_after = 600;  // seconds
  // Of all that keys and values depend on beside their tokens (session_fingerprint.h).
  std::string fingerprint;
  std::function<void()> before_change = {};  // StoreOptions'
};

// Counts since the start, and what is on disk now.
struct ParkingStatus {
  uint64_t parked = 0, woken = 0, damaged = 0;  // sessions
  uint64_t woken_tokens = 0;
  uint64_t disk_bytes = 0, limit_bytes = 0;
  bool busy = false;  // there is one to write that is due
};

class SessionParking {
 public:
  using Clock = std::chrono::steady_clock;

  // What lies in the folder is kept in `cache` from now on. Pieces have at most `most_tokens` tokens.
  // Throws UsageError (the folder), BudgetError.
  SessionParking(const ParkingOptions& options, Runtime& runtime, Device& device, StreamView stream,
                 int64_t most_tokens, PrefixCache& cache);

  // A piece of a session that is due; one that is whole on disk gives up its memory. True: it was not
  // the last piece of the last one. Throws DeviceError.
  bool park_some(Clock::time_point now);
  // Until when nothing is due; none: nothing will be.
  std::optional<Clock::time_point> next_due() const;
  // From now on all are due.
  void park_all() { all_ = true; }
  // At once: before its memory is given up.
  void park(Kept& kept);

  // The next tokens of a session behind the `have` that `sequence` holds, at most up to
  // prefix.tokens; returns how many. Throws InputError: it is damaged, and nobody is offered it again;
  // BudgetError: the sequence has no room.
  int64_t wake_some(const ParkedPrefix& prefix, SequenceId sequence, int64_t have);
  void count_woken(int64_t tokens) {
    ++status_.woken, status_.woken_tokens += static_cast<uint64_t>(tokens);
  }

  // What was asked to be forgotten goes from the disk.
  void drop_unwanted();
  ParkingStatus status() const;
  // Of so many tokens' keys and values on disk.
  uint64_t bytes(int64_t tokens) const {
    return static_cast<uint64_t>(tokens) * rows_.token_bytes();
  }

 private:
  Kept* next_to_park(Clock::time_point now);
  bool is_due(const Kept& kept, Clock::time_point now) const;
  bool park_piece(Kept& kept);
  void require_room(const Kept& kept, uint64_t bytes);
  void refused(Kept& kept, const char* why);
  void lost(uint64_t session);

  PrefixCache& cache_;
  const std::chrono::duration<double> idle_after_;
  SequenceRows rows_;
  SessionStore store_;
  bool all_ = false;
  std::vector<std::byte> written_;  // a piece on its way to the disk
  struct Read {
    uint64_t session = 0;
    RowChunk chunk;
    std::vector<std::byte> rows;
  } read_;  // the chunk that a session wakes from
  ParkingStatus status_;
};

}  // namespace fasa::serve
