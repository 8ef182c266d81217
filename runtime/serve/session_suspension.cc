#include "runtime/serve/session_suspension.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/held_snapshot.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace fasa::serve {
namespace {

// Large enough for the disk's full rate, small enough to write between two tokens.
constexpr size_t kBytesAtOnce = size_t{16} << 20;
constexpr double kNever = 1e9;  // seconds

// Pieces that take about so much time, as measured.
int64_t pieces_in(const IoRate& rate, double seconds, size_t piece) {
  return static_cast<int64_t>(rate.bytes_in(seconds, piece, kBytesAtOnce) / piece);
}

}  // namespace

SessionSuspension::SessionSuspension(const SuspensionOptions& options, Runtime& runtime,
                                     PrefixCache& cache)
    : runtime_(runtime),
      cache_(cache),
      idle_after_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(std::min(options.idle_after, kNever)))),
      snapshots_(options.snapshots),
      store_({.dir = options.dir,
              .limit_bytes = options.limit_bytes,
              .fingerprint = options.fingerprint,
              .page = runtime.traits().page,
              .before_change = options.before_change}) {
  for (FoundSession& found : store_.take_found()) {
    cache_.insert(std::move(found.conversation), {.session = found.number,
                                                  .first_page = found.first_page,
                                                  .states = std::move(found.states)});
  }
}

// None: never, as things are.
std::optional<SessionSuspension::Clock::time_point> SessionSuspension::due_at(
    const CachedSession& cached) const {
  if (!cached.sequence || cached.suspend_failed) return std::nullopt;
  if (all_ || cached.evicted || cached.wanted_on_disk) return Clock::time_point();
  return cached.used_at + idle_after_;
}

// Picks the session idle longest, evicted ones first. If all must be written before shutdown, picks
// the one idle shortest: if time runs out, it is on disk.
CachedSession* SessionSuspension::next_to_suspend(Clock::time_point now) {
  const auto rank = [&](const CachedSession& one) {
    return std::pair(one.evicted, all_ ? one.last_used : ~one.last_used);
  };
  CachedSession* next = nullptr;
  for (CachedSession& cached : cache_.sessions()) {
    const auto due = due_at(cached);
    const bool is_due = due && *due <= now;
    if (is_due && (next == nullptr || rank(cached) > rank(*next))) next = &cached;
  }
  return next;
}

std::optional<SessionSuspension::Clock::time_point> SessionSuspension::next_due() const {
  std::optional<Clock::time_point> next;
  for (const CachedSession& cached : std::as_const(cache_).sessions()) {
    const auto due = due_at(cached);
    if (due && (!next || *due < *next)) next = due;
  }
  return next;
}

bool SessionSuspension::suspend_some(Clock::time_point now, double seconds) {
  drop_unwanted();
  save_records();
  CachedSession* const cached = next_to_suspend(now);
  if (cached == nullptr) return false;
  try {
    if (suspend_piece(*cached, seconds)) cache_.release(*cached);
  } catch (const DeviceError&) {
    throw;
  } catch (const LostSession&) {
    throw;
  } catch (const std::exception& error) {
    refused(*cached, error.what());
  }
  return next_to_suspend(now) != nullptr;
}

// Removes the files of a failed first attempt: no session could resume from them.
void SessionSuspension::refused(CachedSession& cached, const char* why) {
  log_warning(fmt::format("a session of {} tokens could not be stored on disk: {}",
                          cached.log().size(), why));
  cached.suspend_failed = true;
  if (cached.suspended && cached.suspended->tokens == 0) lost(cached.suspended->session);
  if (cached.evicted) cache_.release(cached);
}

// Returns true once the whole session is on disk.
bool SessionSuspension::suspend_piece(CachedSession& cached, double seconds) {
  if (!cached.suspended) cached.suspended = SuspendedPrefix{store_.create(), 0};
  const uint64_t session = cached.suspended->session;
  const int64_t end = cached.log().size();
  const int64_t begin = store_.written(session);
  if (begin < end) {
    const uint64_t again = begin % kPageTokens != 0 ? store_.bytes_of(1) : 0;
    require_room(cached, store_.bytes_of(end) - store_.bytes_of(begin) + again + cached.bytes());
    const PageBytes bytes = runtime_.traits().page;
    const int64_t first = begin / kPageTokens;
    const int64_t pages = pieces_in(writing_, seconds, bytes.rows + bytes.slices);
    write_pages(cached, first, std::min(pages, pages_of(end) - first));
  }
  if (store_.written(session) < end) return false;
  if (store_.committed(session) < end) {
    if (!write_states(cached, seconds)) return false;
    if (!store_.flush(session, seconds)) return false;
    SuspendedPrefix& suspended = *cached.suspended;
    const SequenceInfo info = runtime_.info(*cached.sequence);
    suspended.first_page = std::max(suspended.first_page, info.first_page);
    if (info.held > 0) suspended.held = info.held;
    cached.conversation.held = suspended.held;
    store_.commit(session, cached.conversation, suspended.first_page);
    suspended.tokens = end;
    cached.unsaved = false;
    cache_.changed();
    ++status_.suspended;
  }
  return true;
}

// Writes pieces of the states that the file lacks. Returns true once it has all. Those on disk that
// the sequence no longer has, because it was read from there, stay.
bool SessionSuspension::write_states(CachedSession& cached, double seconds) {
  SuspendedPrefix& suspended = *cached.suspended;
  std::vector<StatePoint> points = store_.states(suspended.session);
  for (const StatePoint& point : runtime_.exchange().states(*cached.sequence)) {
    if (std::find(points.begin(), points.end(), point) == points.end()) points.push_back(point);
  }
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.tokens < b.tokens; });
  SnapshotRule rule = snapshots_;
  ++rule.turns;  // the end
  const int64_t held = runtime_.info(*cached.sequence).held;
  keep_snapshots(
      rule, points, [](const StatePoint& point) { return point.tokens; },
      held > 0 ? held : suspended.held);
  const auto piece = static_cast<uint64_t>(store_.piece_bytes());
  int64_t pieces = pieces_in(writing_, seconds, store_.piece_bytes());
  for (; pieces > 0; --pieces) {
    const StoredState* const state = store_.want_states(suspended.session, points);
    suspended.states.clear();
    for (const StatePoint& one : store_.states(suspended.session)) {
      suspended.states.push_back(one.tokens);
    }
    if (state == nullptr) return true;
    const StatePoint& point = state->point;
    const uint64_t done = state->pieces.size() * piece;
    require_room(cached, point.bytes - done + piece);
    state_.resize(std::min(piece, point.bytes - done));
    runtime_.exchange().export_state(*cached.sequence, point, done, state_);
    store_.write_state(suspended.session, point.tokens, state_);
  }
  return false;
}

void SessionSuspension::write_pages(const CachedSession& cached, int64_t first, int64_t pages) {
  const auto begin = Clock::now();
  const PageBytes bytes = runtime_.traits().page;
  rows_.resize(static_cast<size_t>(pages) * bytes.rows);
  page_headers_.resize(static_cast<size_t>(pages) * bytes.slices);
  const std::span<std::byte> rows = rows_, slices = page_headers_;
  const auto tokens_of = [&](size_t i) {
    const int64_t at = (first + static_cast<int64_t>(i)) * kPageTokens;
    return static_cast<int>(std::min<int64_t>(kPageTokens, cached.log().size() - at));
  };
  std::vector<PageSpans> views(static_cast<size_t>(pages));
  for (size_t i = 0; i < views.size(); ++i) {
    views[i] = {rows.subspan(i * bytes.rows, bytes.rows),
                slices.subspan(i * bytes.slices, tokens_of(i) == kPageTokens ? bytes.slices : 0)};
  }
  runtime_.exchange().export_pages(*cached.sequence, first, views);
  for (size_t i = 0; i < views.size(); ++i) {
    store_.write(cached.suspended->session, tokens_of(i), views[i].rows, views[i].slices);
  }
  writing_.moved(rows_.size() + page_headers_.size(), begin);
}

// Least recently used sessions first, with their records unless they are in memory too.
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
    if (!oldest->sequence) oldest->conversation.records.clear();
    lost(oldest->suspended->session);
  }
}

bool SessionSuspension::resume_some(Resuming& resuming, SequenceId sequence, double seconds) {
  const int64_t tokens = resuming.prefix.tokens;
  const bool has_state = runtime_.geometry().linear.layers > 0;
  const int64_t first = runtime_.length(sequence) / kPageTokens, end = pages_of(tokens);
  if (!resuming.pages) {
    resuming.pages = store_.open(resuming.prefix.session, end, has_state ? tokens : 0, pool_);
    resuming.pages->has_until(first);
    if (resuming.rows_later) runtime_.exchange().attach_pages(sequence, resuming.pages, end - 1);
  }
  if (runtime_.length(sequence) == tokens) return load_state(resuming, sequence, seconds);
  const PageFormat& format = resuming.pages->format();
  const size_t bytes =
      resuming.rows_later ? format.header_bytes() : format.header_bytes() + format.bytes.rows;
  load_pages(resuming, sequence, first, std::min(pieces_in(reading_, seconds, bytes), end - first));
  return runtime_.length(sequence) == tokens && !has_state;
}

// Gives the sequence the next pieces of its state. Returns true once it has all.
bool SessionSuspension::load_state(Resuming& resuming, SequenceId sequence, double seconds) {
  const StatePoint& point = resuming.pages->state();
  const LinearLayout layout(runtime_.geometry().linear);
  if (point.bytes != static_cast<uint64_t>(layout.copied_bytes(point.open))) {
    throw LostSession(resuming.prefix.session,
                      fmt::format("a stored state of {} tokens has {} bytes; this model's have {}",
                                  point.tokens, point.bytes, layout.copied_bytes(point.open)));
  }
  const size_t piece = store_.piece_bytes();
  const auto most = static_cast<size_t>(pieces_in(reading_, seconds, piece)) * piece;
  const auto begin = Clock::now();
  state_.resize(std::min<size_t>(most, point.bytes - resuming.state_bytes));
  resuming.pages->read_state(resuming.state_bytes / piece, state_);
  runtime_.exchange().import_state(sequence, point, resuming.state_bytes, state_);
  reading_.moved(state_.size(), begin);
  resuming.state_bytes += state_.size();
  return resuming.state_bytes == point.bytes;
}

uint64_t SessionSuspension::bytes(const SuspendedPrefix& suspended) const {
  const uint64_t piece = store_.piece_bytes();
  uint64_t bytes = store_.bytes_of(suspended.tokens);
  for (const StatePoint& point : store_.states(suspended.session)) {
    bytes += (point.bytes + piece - 1) / piece * piece;
  }
  return bytes;
}

// The last page's rows are read with it, because its tail is rebuilt from them.
void SessionSuspension::load_pages(Resuming& resuming, SequenceId sequence, int64_t first,
                                   int64_t pages) {
  const auto begin = Clock::now();
  const PageFormat& format = resuming.pages->format();
  const int64_t last = pages_of(resuming.prefix.tokens) - 1;
  const int64_t rows_from = !resuming.rows_later ? first : std::min(last, first + pages);
  page_headers_.resize(static_cast<size_t>(pages) * format.header_bytes());
  resuming.pages->read_page_headers(first, page_headers_);
  rows_.resize(static_cast<size_t>(first + pages - rows_from) * format.bytes.rows);
  resuming.pages->read_rows(rows_from, rows_);
  const std::span<const std::byte> page_headers = page_headers_, rows = rows_;
  const int64_t tokens =
      std::min(pages * kPageTokens, resuming.prefix.tokens - first * kPageTokens);
  std::vector<ConstPageSpans> views;
  for (int64_t page = first; page < first + pages; ++page) {
    ConstPageSpans& view = views.emplace_back();
    if (page >= rows_from) {
      view.rows = rows.subspan(
          static_cast<size_t>(page - rows_from) * format.bytes.rows,
          format.bytes.rows - (page < resuming.prefix.first_page ? format.bytes.window_rows : 0));
    }
    if ((page + 1) * kPageTokens <= resuming.prefix.tokens) {
      view.slices = page_headers.subspan(static_cast<size_t>(page - first) * format.header_bytes(),
                                         format.bytes.slices);
    }
  }
  runtime_.exchange().import_pages(sequence, tokens, views);
  reading_.moved(rows_.size() + page_headers_.size(), begin);
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

// A conversation that the disk refuses is dropped from it: it might have a deleted record.
void SessionSuspension::save_records() {
  std::vector<uint64_t> refused;
  for (CachedSession& cached : cache_.sessions()) {
    const bool whole = cached.suspended && cached.suspended->tokens == cached.log().size();
    if (!cached.unsaved || !whole) continue;
    cached.unsaved = false;
    const SuspendedPrefix& suspended = *cached.suspended;
    try {
      store_.commit(suspended.session, cached.conversation, suspended.first_page);
    } catch (const std::exception& error) {
      log_warning(fmt::format("a session could not be stored on disk: {}", error.what()));
      refused.push_back(suspended.session);
    }
  }
  for (const uint64_t session : refused) lost(session);
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
