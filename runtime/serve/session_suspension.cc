#include "runtime/serve/session_suspension.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace fasa::serve {
namespace {

// Large enough for the disk's full rate, small enough to write between two tokens.
constexpr size_t kBytesAtOnce = size_t{16} << 20;

}  // namespace

SessionSuspension::SessionSuspension(const SuspensionOptions& options, Runtime& runtime,
                                     PrefixCache& cache)
    : runtime_(runtime),
      cache_(cache),
      idle_after_(options.idle_after),
      store_({.dir = options.dir,
              .limit_bytes = options.limit_bytes,
              .fingerprint = options.fingerprint,
              .page = runtime.page_bytes(),
              .before_change = options.before_change}) {
  for (FoundSession& found : store_.take_found()) {
    cache_.insert(std::move(found.conversation), found.number, found.first_page);
  }
}

int64_t SessionSuspension::pages_at_once(size_t bytes_of_one) const {
  return static_cast<int64_t>(std::max<size_t>(1, kBytesAtOnce / bytes_of_one));
}

bool SessionSuspension::is_due(const CachedSession& cached, Clock::time_point now) const {
  return cached.sequence && !cached.suspend_failed && (all_ || now - cached.used_at >= idle_after_);
}

// Picks the session idle longest. If all must be written before shutdown, picks the one idle
// shortest: if time runs out, it is on disk.
CachedSession* SessionSuspension::next_to_suspend(Clock::time_point now) {
  CachedSession* next = nullptr;
  for (CachedSession& cached : cache_.sessions()) {
    if (!is_due(cached, now)) continue;
    const bool better = next == nullptr || (all_ ? cached.last_used > next->last_used
                                                 : cached.last_used < next->last_used);
    if (better) next = &cached;
  }
  return next;
}

std::optional<SessionSuspension::Clock::time_point> SessionSuspension::next_due() const {
  std::optional<Clock::time_point> next;
  for (const CachedSession& cached : std::as_const(cache_).sessions()) {
    if (!cached.sequence || cached.suspend_failed) continue;
    const auto due =
        all_ ? Clock::now()
             : cached.used_at + std::chrono::duration_cast<Clock::duration>(idle_after_);
    if (!next || due < *next) next = due;
  }
  return next;
}

bool SessionSuspension::suspend_some(Clock::time_point now) {
  drop_unwanted();
  CachedSession* const cached = next_to_suspend(now);
  if (cached == nullptr) return false;
  try {
    if (suspend_piece(*cached)) cache_.release(*cached);
  } catch (const DeviceError&) {
    throw;
  } catch (const LostSession&) {
    throw;
  } catch (const std::exception& error) {
    refused(*cached, error.what());
  }
  return next_to_suspend(now) != nullptr;
}

void SessionSuspension::suspend(CachedSession& cached) {
  if (cached.suspend_failed) return;
  try {
    while (!suspend_piece(cached)) continue;
  } catch (const DeviceError&) {
    throw;
  } catch (const LostSession&) {
    throw;
  } catch (const std::exception& error) {
    refused(cached, error.what());
  }
}

// Removes the files of a failed first attempt: no session could resume from them.
void SessionSuspension::refused(CachedSession& cached, const char* why) {
  log_warning(fmt::format("a session of {} tokens could not be stored on disk: {}",
                          cached.log().size(), why));
  cached.suspend_failed = true;
  if (cached.suspended && cached.suspended->tokens == 0) lost(cached.suspended->session);
}

// Returns true once the whole session is on disk.
bool SessionSuspension::suspend_piece(CachedSession& cached) {
  if (!cached.suspended) cached.suspended = SuspendedPrefix{store_.create(), 0};
  const uint64_t session = cached.suspended->session;
  const int64_t end = cached.log().size();
  const int64_t begin = store_.written(session);
  const PageBytes bytes = runtime_.page_bytes();
  if (begin < end) {
    const uint64_t again = begin % kPageTokens != 0 ? store_.bytes_of(1) : 0;
    require_room(cached, store_.bytes_of(end) - store_.bytes_of(begin) + again);
  }
  int64_t left = pages_at_once(bytes.rows + bytes.slices);
  for (int64_t at = begin; at < end && left > 0; at = store_.written(session), --left) {
    const int64_t page = at / kPageTokens;
    const auto tokens = static_cast<int>(std::min<int64_t>(kPageTokens, end - page * kPageTokens));
    rows_.resize(bytes.rows);
    page_headers_.resize(tokens == kPageTokens ? bytes.slices : 0);
    runtime_.save_page(*cached.sequence, page, rows_, page_headers_);
    store_.write(session, tokens, rows_, page_headers_);
  }
  if (store_.written(session) < end) return false;
  if (store_.committed(session) < end) {
    SuspendedPrefix& suspended = *cached.suspended;
    suspended.first_page = std::max(suspended.first_page, runtime_.first_page(*cached.sequence));
    store_.commit(session, cached.conversation, suspended.first_page);
    suspended.tokens = end;
    cache_.changed();
    ++status_.suspended;
  }
  return true;
}

// Least recently used sessions first.
void SessionSuspension::require_room(const CachedSession& cached, uint64_t bytes) {
  while (!store_.make_room(bytes)) {
    CachedSession* oldest = nullptr;
    for (CachedSession& one : cache_.sessions()) {
      const bool other = one.suspended && one.id != cached.id;
      if (other && (oldest == nullptr || one.last_used < oldest->last_used)) oldest = &one;
    }
    if (oldest == nullptr) {
      throw UsageError(fmt::format("the session needs {} on disk; sessions_limit allows {}",
                                   format_bytes(bytes), format_bytes(store_.limit_bytes())));
    }
    lost(oldest->suspended->session);
  }
}

int64_t SessionSuspension::resume_some(Resuming& resuming, SequenceId sequence) {
  const int64_t have = runtime_.length(sequence);
  const int64_t first = have / kPageTokens, end = pages_of(resuming.prefix.tokens);
  if (!resuming.pages) {
    resuming.pages = store_.open(resuming.prefix.session, end, pool_);
    resuming.pages->has_until(first);
    if (resuming.rows_later) runtime_.set_row_source(sequence, resuming.pages, end - 1);
  }
  const PageFormat& format = resuming.pages->format();
  const size_t bytes =
      resuming.rows_later ? format.header_bytes() : format.header_bytes() + format.bytes.rows;
  load_pages(resuming, sequence, first, std::min(pages_at_once(bytes), end - first));
  return runtime_.length(sequence) - have;
}

// The last page's rows are read with it, because its tail is rebuilt from them.
void SessionSuspension::load_pages(Resuming& resuming, SequenceId sequence, int64_t first,
                                   int64_t pages) {
  const PageFormat& format = resuming.pages->format();
  const int64_t last = pages_of(resuming.prefix.tokens) - 1;
  const int64_t rows_from = !resuming.rows_later ? first : std::min(last, first + pages);
  page_headers_.resize(static_cast<size_t>(pages) * format.header_bytes());
  resuming.pages->read_page_headers(first, page_headers_);
  rows_.resize(static_cast<size_t>(first + pages - rows_from) * format.bytes.rows);
  resuming.pages->read_rows(rows_from, rows_);
  const std::span<const std::byte> page_headers = page_headers_, rows = rows_;
  for (int64_t page = first; page < first + pages; ++page) {
    const int64_t tokens =
        std::min<int64_t>(kPageTokens, resuming.prefix.tokens - page * kPageTokens);
    const auto header =
        page_headers.subspan(static_cast<size_t>(page - first) * format.header_bytes());
    const size_t wanted =
        format.bytes.rows - (page < resuming.prefix.first_page ? format.bytes.window_rows : 0);
    const auto row =
        page < rows_from
            ? rows.first(0)
            : rows.subspan(static_cast<size_t>(page - rows_from) * format.bytes.rows, wanted);
    runtime_.load_page(sequence, static_cast<int>(tokens), row,
                       header.first(tokens == kPageTokens ? format.bytes.slices : 0));
  }
}

void SessionSuspension::lost(uint64_t session) {
  store_.remove(session);
  cache_.changed();
  for (CachedSession& cached : cache_.sessions()) {
    if (cached.suspended && cached.suspended->session == session) cached.suspended.reset();
  }
}

void SessionSuspension::drop_unwanted() {
  for (const uint64_t session : cache_.take_unwanted()) lost(session);
}

SuspensionStatus SessionSuspension::status() const {
  SuspensionStatus status = status_;
  status.read_bytes = pool_.bytes_read();
  status.disk_bytes = store_.used_bytes();
  status.limit_bytes = store_.limit_bytes();
  const auto due = next_due();
  status.busy = due && *due <= Clock::now();
  return status;
}

}  // namespace fasa::serve
