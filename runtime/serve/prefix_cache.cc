#include "runtime/serve/prefix_cache.h"

#include <fmt/format.h>

#include <algorithm>
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

// As the conversation computed them that holds most of the tokens, the one used last of several.
TokenLog longest_known(const std::list<Kept>& all, const std::string& salt,
                       std::span<const int32_t> wanted) {
  const Kept* longest = nullptr;
  int64_t most = 0;
  for (const Kept& kept : all) {
    if (kept.conversation.salt != salt) continue;
    const int64_t tokens = kept.log().common(wanted);
    const bool later = longest != nullptr && kept.last_used > longest->last_used;
    if (tokens > most || (tokens == most && tokens > 0 && later)) most = tokens, longest = &kept;
  }
  return longest == nullptr ? TokenLog() : beginning_of(longest->log(), most);
}

}  // namespace

size_t Kept::bytes() const {
  return log().bytes() + conversation.text.size() + conversation.ahead.size() * sizeof(int32_t);
}

PrefixCache::PrefixCache(Runtime& runtime, size_t log_bytes)
    : runtime_(runtime), log_bytes_(log_bytes) {}

PrefixCache::~PrefixCache() {
  for (Kept& kept : kept_) free(kept);
}

PrefixMatch PrefixCache::find(const std::string& salt, std::span<const int32_t> prompt,
                              const TokenLog& known) const {
  PrefixMatch match;
  if (prompt.empty()) return match;
  match.known =
      known.size() > 0 ? known : longest_known(kept_, salt, prompt.first(prompt.size() - 1));
  const auto most = std::min(match.known.size(), static_cast<int64_t>(prompt.size()) - 1);
  for (const Kept& kept : kept_) {
    if (kept.conversation.salt != salt || !kept.sequence) continue;
    const int64_t tokens = std::min(kept.log().common(match.known), most);
    if (!runtime_.reaches(*kept.sequence, tokens)) continue;
    if (tokens > match.cached) match.cached = tokens, match.source = kept.id;
  }
  int64_t held = match.cached;
  for (const Kept& kept : kept_) {
    if (kept.conversation.salt != salt || !kept.suspended) continue;
    const int64_t tokens = std::min({kept.log().common(match.known), most, kept.suspended->tokens});
    if (!runtime_.reaches_from(kept.suspended->first_page, tokens)) continue;
    if (tokens <= held) continue;
    match.suspended = {kept.suspended->session, held = tokens, kept.suspended->first_page};
  }
  return match;
}

SequenceId PrefixCache::take(uint64_t id, int64_t tokens) {
  changed();
  Kept& kept = *find(id);
  kept.last_used = ++uses_;
  kept.used_at = std::chrono::steady_clock::now();
  if (tokens < kept.log().size()) return runtime_.fork(*kept.sequence, tokens);
  return *std::exchange(kept.sequence, std::nullopt);
}

uint64_t PrefixCache::keep(Conversation conversation, SequenceId sequence) {
  changed();
  const KvMemory memory =
      runtime_.estimate_memory(conversation.log.size(), 1, runtime_.reach(sequence));
  Kept heir{.id = next_id_++,
            .conversation = std::move(conversation),
            .sequence = sequence,
            .device_bytes = memory.device_slices + memory.device_rows + memory.device_hot_rows,
            .host_bytes = memory.host_rows,
            .last_used = ++uses_,
            .used_at = std::chrono::steady_clock::now()};
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const bool beginning = kept->conversation.salt == heir.conversation.salt &&
                           kept->log().common(heir.log()) == kept->log().size();
    if (beginning) inherit(heir, *kept);
    kept = beginning ? kept_.erase(kept) : std::next(kept);
  }
  kept_.push_back(std::move(heir));
  forget_oldest_logs();
  return kept_.back().id;
}

void PrefixCache::keep(Conversation conversation, uint64_t session, int64_t first_page) {
  changed();
  const int64_t tokens = conversation.log.size();
  kept_.push_back({.id = next_id_++,
                   .conversation = std::move(conversation),
                   .suspended = SuspendedPrefix{session, tokens, first_page},
                   .last_used = ++uses_});
}

// What the heir goes on from: the longer one's place on disk, and the words where no token came.
void PrefixCache::inherit(Kept& heir, Kept& beginning) {
  free(beginning);
  if (heir.conversation.text.empty() && beginning.log().size() == heir.log().size()) {
    heir.conversation.text = std::move(beginning.conversation.text);
    heir.conversation.ahead = std::move(beginning.conversation.ahead);
  }
  if (!beginning.suspended) return;
  if (!heir.suspended || beginning.suspended->tokens > heir.suspended->tokens) {
    std::swap(heir.suspended, beginning.suspended);
  }
  if (beginning.suspended) unwanted_.push_back(beginning.suspended->session);
}

Kept* PrefixCache::oldest_resident() {
  Kept* oldest = nullptr;
  for (Kept& kept : kept_) {
    if (kept.sequence && (oldest == nullptr || kept.last_used < oldest->last_used)) oldest = &kept;
  }
  return oldest;
}

void PrefixCache::release(Kept& kept) {
  changed();
  free(kept);
  forget_oldest_logs();
}

bool PrefixCache::forget(uint64_t id) {
  Kept* const kept = find(id);
  if (kept == nullptr) return false;
  changed();
  free(*kept);
  if (kept->suspended) unwanted_.push_back(kept->suspended->session);
  kept_.remove_if([&](const Kept& one) { return one.id == id; });
  return true;
}

int64_t PrefixCache::sequences() const {
  return std::count_if(kept_.begin(), kept_.end(),
                       [](const Kept& kept) { return kept.sequence.has_value(); });
}

Kept* PrefixCache::find(uint64_t id) {
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.id == id; });
  return found == kept_.end() ? nullptr : &*found;
}

void PrefixCache::free(Kept& kept) {
  if (!kept.sequence) return;
  const SequenceId sequence = *std::exchange(kept.sequence, std::nullopt);
  try {
    runtime_.free(sequence);
  } catch (const Error& error) {
    log_warning(fmt::format("freeing a kept sequence: {}", error.what()));
  }
}

void PrefixCache::forget_oldest_logs() {
  const auto remembered = [](const Kept& kept) { return !kept.sequence && !kept.suspended; };
  size_t bytes = 0;
  for (const Kept& kept : kept_) bytes += remembered(kept) ? kept.bytes() : 0;
  while (bytes > log_bytes_) {
    auto oldest = kept_.end();
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
      if (!remembered(*kept)) continue;
      if (oldest == kept_.end() || kept->last_used < oldest->last_used) oldest = kept;
    }
    bytes -= oldest->bytes();
    kept_.erase(oldest);
  }
}

}  // namespace fasa::serve
