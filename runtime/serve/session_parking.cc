#include "runtime/serve/session_parking.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace fasa::serve {
namespace {

// Long enough for a disk's full rate, short enough to lie between two tokens.
int64_t tokens_of_piece(const Geometry& geometry, int64_t most) {
  constexpr int64_t kBytes = int64_t{16} << 20;
  const int64_t token =
      int64_t{2} * geometry.layers * geometry.kv_heads * (geometry.key_dim + geometry.value_dim);
  return std::clamp<int64_t>(kBytes / token, 1, most);
}

}  // namespace

SessionParking::SessionParking(const ParkingOptions& options, Runtime& runtime, Device& device,
                               StreamView stream, int64_t most_tokens, PrefixCache& cache)
    : cache_(cache),
      idle_after_(options.idle_after),
      rows_(runtime, device, stream, tokens_of_piece(runtime.geometry(), most_tokens)),
      store_({.dir = options.dir,
              .limit_bytes = options.limit_bytes,
              .fingerprint = options.fingerprint,
              .token_bytes = rows_.token_bytes(),
              .before_change = options.before_change}) {
  for (FoundSession& found : store_.take_found()) {
    cache_.keep(std::move(found.conversation), found.number);
  }
}

bool SessionParking::is_due(const Kept& kept, Clock::time_point now) const {
  return kept.sequence && !kept.unparkable && (all_ || now - kept.used_at >= idle_after_);
}

// The one that has been idle longest; where all are due, the one that was, least: if time runs out it
// is there.
Kept* SessionParking::next_to_park(Clock::time_point now) {
  Kept* next = nullptr;
  for (Kept& kept : cache_.kept()) {
    if (!is_due(kept, now)) continue;
    const bool better = next == nullptr || (all_ ? kept.last_used > next->last_used
                                                 : kept.last_used < next->last_used);
    if (better) next = &kept;
  }
  return next;
}

std::optional<SessionParking::Clock::time_point> SessionParking::next_due() const {
  std::optional<Clock::time_point> next;
  for (const Kept& kept : std::as_const(cache_).kept()) {
    if (!kept.sequence || kept.unparkable) continue;
    const auto due = all_ ? Clock::now()
                          : kept.used_at + std::chrono::duration_cast<Clock::duration>(idle_after_);
    if (!next || due < *next) next = due;
  }
  return next;
}

bool SessionParking::park_some(Clock::time_point now) {
  drop_unwanted();
  Kept* const kept = next_to_park(now);
  if (kept == nullptr) return false;
  try {
    if (park_piece(*kept)) cache_.release(*kept);
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception& error) {
    refused(*kept, error.what());
  }
  return next_to_park(now) != nullptr;
}

void SessionParking::park(Kept& kept) {
  if (kept.unparkable) return;
  try {
    while (!park_piece(kept)) continue;
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception& error) {
    refused(kept, error.what());
  }
}

// What a first attempt left goes: nobody could wake from it.
void SessionParking::refused(Kept& kept, const char* why) {
  log_warning(fmt::format("a session of {} tokens is not on disk: {}", kept.log().size(), why));
  kept.unparkable = true;
  if (kept.parked && kept.parked->tokens == 0) lost(kept.parked->session);
}

// True: all of it is on disk.
bool SessionParking::park_piece(Kept& kept) {
  if (!kept.parked) kept.parked = ParkedPrefix{store_.create(), 0};
  const uint64_t session = kept.parked->session;
  const int64_t end = kept.log().size();
  const int64_t begin = store_.written(session);
  const int64_t tokens = std::min(rows_.most_tokens(), end - begin);
  if (tokens > 0) {
    require_room(kept, static_cast<uint64_t>(end - begin) * rows_.token_bytes());
    written_.resize(static_cast<size_t>(tokens) * rows_.token_bytes());
    rows_.read(*kept.sequence, begin, tokens, written_);
    store_.write(session, tokens, written_);
  }
  if (begin + tokens < end) return false;
  if (store_.committed(session) < end) {
    store_.commit(session, kept.conversation);
    kept.parked->tokens = end;
    cache_.changed();
    ++status_.parked;
  }
  return true;
}

// Sessions used longest ago go first.
void SessionParking::require_room(const Kept& kept, uint64_t bytes) {
  while (!store_.make_room(bytes)) {
    Kept* oldest = nullptr;
    for (Kept& one : cache_.kept()) {
      const bool other = one.parked && one.id != kept.id;
      if (other && (oldest == nullptr || one.last_used < oldest->last_used)) oldest = &one;
    }
    if (oldest == nullptr) {
      throw UsageError(fmt::format("it takes {} on disk; sessions_limit allows {}",
                                   format_bytes(bytes), format_bytes(store_.limit_bytes())));
    }
    lost(oldest->parked->session);
  }
}

int64_t SessionParking::wake_some(const ParkedPrefix& prefix, SequenceId sequence, int64_t have) {
  const auto holds = [&](const RowChunk& chunk) {
    return read_.session == prefix.session && chunk.first <= have &&
           have < chunk.first + chunk.tokens;
  };
  try {
    if (!holds(read_.chunk)) {
      const RowChunk chunk = store_.chunk_at(prefix.session, have);
      read_.session = 0;
      store_.read(prefix.session, chunk, &read_.rows);
      read_.chunk = chunk;
      read_.session = prefix.session;
    }
  } catch (const InputError&) {
    ++status_.damaged;
    lost(prefix.session);
    throw;
  }
  const RowChunk& chunk = read_.chunk;
  const int64_t tokens =
      std::min({rows_.most_tokens(), chunk.first + chunk.tokens - have, prefix.tokens - have});
  rows_.append(sequence, read_.rows, chunk.tokens, have - chunk.first, tokens);
  return tokens;
}

void SessionParking::lost(uint64_t session) {
  store_.remove(session);
  if (read_.session == session) read_.session = 0;
  cache_.changed();
  for (Kept& kept : cache_.kept()) {
    if (kept.parked && kept.parked->session == session) kept.parked.reset();
  }
}

void SessionParking::drop_unwanted() {
  for (const uint64_t session : cache_.take_unwanted()) lost(session);
}

ParkingStatus SessionParking::status() const {
  ParkingStatus status = status_;
  status.disk_bytes = store_.used_bytes();
  status.limit_bytes = store_.limit_bytes();
  const auto due = next_due();
  status.busy = due && *due <= Clock::now();
  return status;
}

}  // namespace fasa::serve
