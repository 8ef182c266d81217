#include "runtime/serve/prefix_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa::serve {
namespace {

TokenLog beginning_of(const TokenLog& log, int64_t tokens) {
  TokenLog part;
  for (int64_t i = 0; i < tokens; ++i) {
    part.append(log.ids()[static_cast<size_t>(i)], log.computed(i));
  }
  return part;
}

// The log of the conversation that shares the most tokens; the most recently used if several do.
TokenLog longest_known(const std::list<CachedSession>& all, const std::string& salt,
                       std::span<const int32_t> wanted) {
  const CachedSession* longest = nullptr;
  int64_t most = 0;
  for (const CachedSession& cached : all) {
    if (cached.conversation.salt != salt) continue;
    const int64_t tokens = cached.log().common(wanted);
    const bool later = longest != nullptr && cached.last_used > longest->last_used;
    if (tokens > most || (tokens == most && tokens > 0 && later)) most = tokens, longest = &cached;
  }
  return longest == nullptr ? TokenLog() : beginning_of(longest->log(), most);
}

bool has(const Records& records, const std::string& id) {
  return std::any_of(records.begin(), records.end(),
                     [&](const auto& record) { return record->id == id; });
}

bool holds(const CachedSession& cached, const std::shared_ptr<const Record>& record) {
  const Records& all = cached.conversation.records;
  return std::find(all.begin(), all.end(), record) != all.end();
}

// Adds those whose ids are new. True: there are some.
bool add_records(Records& records, const Records& more) {
  bool any = false;
  for (const auto& record : more) {
    if (has(records, record->id)) continue;
    records.push_back(record);
    any = true;
  }
  return any;
}

}  // namespace

size_t CachedSession::bytes() const {
  size_t bytes =
      log().bytes() + conversation.text.size() + conversation.ahead.size() * sizeof(int32_t);
  for (const auto& record : conversation.records) bytes += record->id.size() + record->data.size();
  return bytes;
}

PrefixCache::PrefixCache(Runtime& runtime, size_t log_bytes)
    : runtime_(runtime), log_bytes_(log_bytes) {}

PrefixCache::~PrefixCache() {
  for (CachedSession& cached : sessions_) free(cached);
}

PrefixMatch PrefixCache::find(const std::string& salt, std::span<const int32_t> prompt,
                              const TokenLog& known) const {
  PrefixMatch match;
  if (prompt.empty()) return match;
  match.known =
      known.size() > 0 ? known : longest_known(sessions_, salt, prompt.first(prompt.size() - 1));
  const auto most = std::min(match.known.size(), static_cast<int64_t>(prompt.size()) - 1);
  bool cut_to_pages = false;  // the source can be
  for (const CachedSession& cached : sessions_) {
    if (cached.conversation.salt != salt || !cached.sequence) continue;
    const int64_t common = std::min(cached.log().common(match.known), most);
    const int64_t tokens = runtime_.resume_point(*cached.sequence, common);
    match.held = std::max(match.held, common);
    if (tokens <= match.cached) continue;
    match.cached = tokens, match.source = cached.id;
    const int64_t whole = tokens / kPageTokens * kPageTokens;
    cut_to_pages = !has_states() && runtime_.resume_point(*cached.sequence, whole) == whole;
  }
  int64_t longest = match.cached;
  for (const CachedSession& cached : sessions_) {
    if (cached.conversation.salt != salt || !cached.suspended) continue;
    const SuspendedPrefix& suspended = *cached.suspended;
    const int64_t common = std::min(cached.log().common(match.known), most);
    const int64_t tokens = resume_point(suspended, common);
    match.held = std::max(match.held, std::min(common, suspended.tokens));
    if (tokens <= longest) continue;
    longest = tokens;
    match.suspended = {suspended.session, tokens, first_page(suspended, tokens)};
  }
  // The disk goes on after whole pages, where a sequence may have no state to be cut to.
  if (match.suspended && !cut_to_pages) match.cached = 0, match.source.reset();
  return match;
}

// The most tokens, at most `tokens`, that a sequence read from disk can have.
int64_t PrefixCache::resume_point(const SuspendedPrefix& suspended, int64_t tokens) const {
  int64_t point = std::min(tokens, suspended.tokens);
  if (has_states()) {
    const auto end = std::upper_bound(suspended.states.begin(), suspended.states.end(), point);
    point = end == suspended.states.begin() ? 0 : *std::prev(end);
  }
  if (runtime_.traits().can_truncate(suspended.first_page, point)) return point;
  return suspended.held <= point ? suspended.held : 0;
}

// The first page that a sequence of `tokens` tokens from it gets with all rows.
int64_t PrefixCache::first_page(const SuspendedPrefix& suspended, int64_t tokens) const {
  const RuntimeTraits& traits = runtime_.traits();
  return traits.can_truncate(suspended.first_page, tokens)
             ? suspended.first_page
             : traits.retention.first_needed_page(tokens);
}

SequenceId PrefixCache::take(uint64_t id, int64_t tokens) {
  changed();
  CachedSession& cached = *find(id);
  cached.last_used = ++uses_;
  cached.used_at = std::chrono::steady_clock::now();
  if (tokens < cached.log().size()) return runtime_.fork(*cached.sequence, tokens);
  return *std::exchange(cached.sequence, std::nullopt);
}

uint64_t PrefixCache::insert(Conversation conversation, SequenceId sequence) {
  changed();
  const KvMemory memory =
      runtime_.estimate_memory(conversation.log.size(), 1, runtime_.info(sequence).rollback_tokens);
  CachedSession heir{.id = next_id_++,
                     .conversation = std::move(conversation),
                     .sequence = sequence,
                     .device_bytes = memory.device_slices + memory.device_rows +
                                     memory.device_hot_rows + memory.device_states,
                     .host_bytes = memory.host_rows + memory.host_states,
                     .last_used = ++uses_,
                     .used_at = std::chrono::steady_clock::now()};
  for (auto cached = sessions_.begin(); cached != sessions_.end();) {
    const bool beginning = cached->conversation.salt == heir.conversation.salt &&
                           cached->log().common(heir.log()) == cached->log().size();
    if (beginning) inherit(heir, *cached);
    cached = beginning ? sessions_.erase(cached) : std::next(cached);
  }
  sessions_.push_back(std::move(heir));
  forget_oldest_logs();
  return sessions_.back().id;
}

void PrefixCache::insert(Conversation conversation, SuspendedPrefix suspended) {
  changed();
  suspended.tokens = conversation.log.size();
  suspended.held = conversation.held;
  sessions_.push_back({.id = next_id_++,
                       .conversation = std::move(conversation),
                       .suspended = std::move(suspended),
                       .last_used = ++uses_});
}

// Passes on to the extending session what it lacks: the copy on disk if it is longer, and the text
// if no token was added.
void PrefixCache::inherit(CachedSession& heir, CachedSession& beginning) {
  free(beginning);
  heir.turns = std::max(heir.turns, beginning.turns + 1);
  if (heir.conversation.text.empty() && beginning.log().size() == heir.log().size()) {
    heir.conversation.text = std::move(beginning.conversation.text);
    heir.conversation.ahead = std::move(beginning.conversation.ahead);
  }
  heir.unsaved |= add_records(heir.conversation.records, beginning.conversation.records);
  if (!beginning.suspended) return;
  if (!heir.suspended || beginning.suspended->tokens > heir.suspended->tokens) {
    std::swap(heir.suspended, beginning.suspended);
  }
  if (beginning.suspended) unwanted_.push_back(beginning.suspended->session);
}

// Tokens that a session in memory shares with another one that more requests continued, or that is
// longer: they are the other's.
int64_t PrefixCache::shared_tokens(const CachedSession& cached) const {
  const auto rank = [](const CachedSession& one) {
    return std::tuple(one.turns, one.log().size(), one.id);
  };
  int64_t shared = 0;
  for (const CachedSession& other : sessions_) {
    const bool owns = other.sequence && other.conversation.salt == cached.conversation.salt &&
                      rank(other) > rank(cached);
    if (owns) shared = std::max(shared, other.log().common(cached.log()));
  }
  return shared;
}

// The time to compute its own tokens again, by the byte that they hold, times how likely a request
// is to continue it: more with each turn so far, half as likely after every kHalfLife. A prompt's
// time is n (1 + n / 12 h), h the width of the queries: a layer's weights take about 24 h^2
// operations a token, its attention 4 h for each earlier one.
double PrefixCache::worth(const CachedSession& cached,
                          std::chrono::steady_clock::time_point now) const {
  constexpr double kHalfLife = 600;  // seconds
  constexpr int kMostTurns = 4;
  const Geometry& geometry = runtime_.geometry();
  const double width = 12.0 * geometry.query_heads * geometry.key_dim;
  const auto seconds_of = [&](double tokens) { return tokens * (1 + tokens / width); };
  const auto tokens = static_cast<double>(cached.log().size());
  const auto shared = static_cast<double>(shared_tokens(cached));
  const double seconds = seconds_of(tokens) - seconds_of(shared);
  const double bytes = static_cast<double>(cached.device_bytes + cached.host_bytes) *
                           (1 - shared / std::max(tokens, 1.0)) +
                       1;
  const double idle = std::chrono::duration<double>(now - cached.used_at).count();
  return seconds / bytes * std::min(cached.turns, kMostTurns) * std::exp2(-idle / kHalfLife);
}

CachedSession* PrefixCache::cheapest() {
  const auto now = std::chrono::steady_clock::now();
  CachedSession* least = nullptr;
  double lowest = 0;
  for (CachedSession& cached : sessions_) {
    if (!cached.sequence || cached.evicted) continue;
    const double own = worth(cached, now);
    if (least == nullptr || own < lowest) least = &cached, lowest = own;
  }
  return least;
}

bool PrefixCache::evicting() const {
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [](const CachedSession& one) { return one.sequence && one.evicted; });
}

void PrefixCache::release(CachedSession& cached) {
  changed();
  free(cached);
  forget_oldest_logs();
}

bool PrefixCache::forget(uint64_t id) {
  CachedSession* const cached = find(id);
  if (cached == nullptr) return false;
  changed();
  free(*cached);
  if (cached->suspended) unwanted_.push_back(cached->suspended->session);
  sessions_.remove_if([&](const CachedSession& one) { return one.id == id; });
  return true;
}

CachedSession* PrefixCache::attach(const std::string& salt, std::span<const int32_t> ids,
                                   const Records& records) {
  CachedSession* longest = nullptr;
  int64_t most = 0;
  for (CachedSession& cached : sessions_) {
    if (cached.conversation.salt != salt) continue;
    const int64_t tokens = cached.log().common(ids);
    // The last token of an answer is sampled, not computed.
    const bool whole = tokens == cached.log().size() || tokens + 1 >= std::ssize(ids);
    if (whole && tokens > most) most = tokens, longest = &cached;
  }
  if (longest == nullptr) return nullptr;
  for (const auto& record : records) {
    for (CachedSession& cached : sessions_) {
      if (cached.conversation.salt == salt && !holds(cached, record))
        remove_record(cached, record->id);
    }
  }
  longest->unsaved |= add_records(longest->conversation.records, records);
  return longest;
}

// A copy on disk that is no longer the whole conversation is dropped, not written again.
void PrefixCache::remove_record(CachedSession& cached, const std::string& id) {
  const auto removed = std::erase_if(cached.conversation.records,
                                     [&](const auto& record) { return record->id == id; });
  if (removed == 0) return;
  cached.unsaved = true;
  if (!cached.suspended || cached.suspended->tokens == cached.log().size()) return;
  unwanted_.push_back(cached.suspended->session);
  cached.suspended.reset();
}

const CachedSession* PrefixCache::holder(const std::shared_ptr<const Record>& record) const {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [&](const CachedSession& one) { return holds(one, record); });
  return found == sessions_.end() ? nullptr : &*found;
}

void PrefixCache::detach(const std::string& salt, const std::string& record) {
  std::vector<uint64_t> left;
  for (CachedSession& cached : sessions_) {
    if (cached.conversation.salt != salt || !has(cached.conversation.records, record)) continue;
    remove_record(cached, record);
    if (cached.conversation.records.empty()) left.push_back(cached.id);
  }
  for (const uint64_t id : left) forget(id);
}

int64_t PrefixCache::sequences() const {
  return std::count_if(sessions_.begin(), sessions_.end(),
                       [](const CachedSession& cached) { return cached.sequence.has_value(); });
}

CachedSession* PrefixCache::find(uint64_t id) {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(),
                                  [&](const CachedSession& cached) { return cached.id == id; });
  return found == sessions_.end() ? nullptr : &*found;
}

void PrefixCache::free(CachedSession& cached) {
  cached.wanted_on_disk = false;
  if (!cached.sequence) return;
  const SequenceId sequence = *std::exchange(cached.sequence, std::nullopt);
  try {
    runtime_.free(sequence);
  } catch (const Error& error) {
    log_warning(fmt::format("freeing a cached sequence failed: {}", error.what()));
  }
}

void PrefixCache::forget_oldest_logs() {
  const auto remembered = [](const CachedSession& cached) {
    return !cached.sequence && !cached.suspended;
  };
  size_t bytes = 0;
  for (const CachedSession& cached : sessions_) bytes += remembered(cached) ? cached.bytes() : 0;
  while (bytes > log_bytes_) {
    auto oldest = sessions_.end();
    for (auto cached = sessions_.begin(); cached != sessions_.end(); ++cached) {
      if (!remembered(*cached)) continue;
      if (oldest == sessions_.end() || cached->last_used < oldest->last_used) oldest = cached;
    }
    bytes -= oldest->bytes();
    sessions_.erase(oldest);
  }
}

}  // namespace fasa::serve
