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

}  // namespace

PrefixCache::PrefixCache(Runtime& runtime, size_t log_bytes)
    : runtime_(runtime), log_bytes_(log_bytes) {}

PrefixCache::~PrefixCache() {
  for (Kept& kept : kept_) free(kept);
}

PrefixMatch PrefixCache::find(const std::string& salt, std::span<const int32_t> prompt) const {
  PrefixMatch match;
  if (prompt.empty()) return match;
  const auto wanted = prompt.first(prompt.size() - 1);
  const Kept* longest = nullptr;
  int64_t most = 0;
  for (const Kept& kept : kept_) {
    if (kept.salt != salt) continue;
    const int64_t tokens = kept.log.common(wanted);
    const bool later = longest != nullptr && kept.last_used > longest->last_used;
    if (tokens > most || (tokens == most && tokens > 0 && later)) most = tokens, longest = &kept;
  }
  if (longest == nullptr) return match;
  match.known = beginning_of(longest->log, most);
  for (const Kept& kept : kept_) {
    if (kept.salt != salt || !kept.sequence) continue;
    const int64_t tokens = kept.log.common(match.known);
    if (tokens > match.cached) match.cached = tokens, match.source = kept.id;
  }
  return match;
}

SequenceId PrefixCache::take(uint64_t id, int64_t tokens) {
  Kept& kept = *find(id);
  kept.last_used = ++uses_;
  if (tokens < kept.log.size()) return runtime_.fork(*kept.sequence, tokens);
  const SequenceId sequence = *std::exchange(kept.sequence, std::nullopt);
  return sequence;
}

uint64_t PrefixCache::keep(std::string salt, TokenLog log, SequenceId sequence) {
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const bool beginning = kept->salt == salt && kept->log.common(log) == kept->log.size();
    if (beginning) free(*kept);
    kept = beginning ? kept_.erase(kept) : std::next(kept);
  }
  kept_.push_back({.id = next_id_++,
                   .salt = std::move(salt),
                   .log = std::move(log),
                   .sequence = sequence,
                   .last_used = ++uses_});
  forget_oldest_logs();
  return kept_.back().id;
}

bool PrefixCache::evict_one() {
  Kept* oldest = nullptr;
  for (Kept& kept : kept_) {
    if (kept.sequence && (oldest == nullptr || kept.last_used < oldest->last_used)) oldest = &kept;
  }
  if (oldest == nullptr) return false;
  free(*oldest);
  return true;
}

bool PrefixCache::forget(uint64_t id) {
  Kept* const kept = find(id);
  if (kept == nullptr) return false;
  free(*kept);
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
  size_t bytes = 0;
  for (const Kept& kept : kept_) bytes += kept.sequence ? 0 : kept.log.bytes();
  while (bytes > log_bytes_) {
    auto oldest = kept_.end();
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
      if (kept->sequence) continue;
      if (oldest == kept_.end() || kept->last_used < oldest->last_used) oldest = kept;
    }
    bytes -= oldest->log.bytes();
    kept_.erase(oldest);
  }
}

}  // namespace fasa::serve
