#include "runtime/api/sequences/extra_hot_rows.h"

#include <algorithm>
#include <utility>

#include "runtime/api/memory_estimate.h"

namespace fasa {
namespace {

uint64_t free_bytes(const MemoryUse& use) {
  return use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
}

}  // namespace

uint64_t ExtraHotRows::needed_with(int hot_rows, int64_t tokens, int step_tokens) const {
  return estimate_memory(engine_.settings(), hot_rows, tokens, step_tokens, prefetch_.scratch())
      .device_total();
}

// Below a whole set, misses need a fetch buffer, which takes memory too.
uint64_t ExtraHotRows::min_bytes(int64_t tokens, int step_tokens) const {
  if (!wanted_) return needed_with(sequences_.store().hot_rows(), tokens, step_tokens);
  const int set_size = std::min(*wanted_, largest_set(engine_.settings(), tokens));
  return std::min(needed_with(0, tokens, step_tokens), needed_with(set_size, tokens, step_tokens));
}

void ExtraHotRows::set(int hot_rows) {
  if (hot_rows == sequences_.store().hot_rows()) return;
  engine_.scratch().drop_decode();  // was sized for the old number of hot rows
  sequences_.store().set_hot_rows(hot_rows);
  prefetch_.set_hot_rows(hot_rows);
}

void ExtraHotRows::fit(int64_t tokens, int step_tokens, const Load& load, bool may_grow) {
  constexpr uint64_t kMargin = uint64_t{16} << 10;  // descriptors, alignment
  if (!wanted_) return;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->rows().memory().hot_rows > 0) return;
  }
  const MemoryUse use = engine_.device().memory(MemorySpace::kDevice);
  const uint64_t used =
      use.used_bytes - std::min(use.used_bytes, engine_.scratch().bytes() +
                                                    engine_.scratch().wide_bytes() + load.held);
  const uint64_t room = (use.limit_bytes - std::min(use.limit_bytes, used + kMargin)) /
                        static_cast<uint64_t>(load.count);
  const auto fits = [&](int hot_rows) {
    const uint64_t need = needed_with(hot_rows, tokens, step_tokens);
    // Copies of a short sequence may take less than its protected rows.
    const uint64_t least = std::min(need, needed_with(0, tokens, step_tokens));
    return need <= room && (!may_grow || need - least <= room - need);
  };
  // So there are two ranges (see min_bytes()), and within each fewer rows need less memory. If a
  // range's first value does not fit, none does.
  const int set_size = std::min(*wanted_, largest_set(engine_.settings(), tokens));
  const auto largest = [&](int low, int high) {
    while (low < high) {
      const int middle = low + (high - low + 1) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  };
  int best = *wanted_;
  if (!fits(best)) {
    best = fits(set_size) ? largest(set_size, best) : largest(0, std::max(set_size - 1, 0));
  }
  set(best);
}

void ExtraHotRows::widen(std::span<const StepPart> sequences) {
  const int reserved_slots = sequences_.store().hot_rows();
  if (!wanted_) return;
  if (reserved_slots < *wanted_) return;  // even the wanted rows did not fit
  for (const StepPart& part : sequences) {
    KvSequence& sequence = *part.sequence;
    HotRows* const hot = sequence.rows().hot_rows();
    if (part.mode != StepMode::kDecode || hot == nullptr || !hot->may_widen()) continue;
    const int64_t reserved = sequence.rows().pages() * kPageTokens;
    const int slots = extra_hot_rows(engine_.settings(), reserved_slots,
                                     std::max(reserved, sequence.length() + part.tokens),
                                     free_bytes(engine_.device().memory(MemorySpace::kDevice)));
    if (slots > 0) hot->widen(slots);
  }
}

// Those of the sequence with the most, of equals the oldest; null: there is none.
HotRows* ExtraHotRows::widest() const {
  HotRows* most = nullptr;
  uint64_t max_id = 0;
  for (const auto& [id, sequence] : sequences_) {
    HotRows* const hot = sequence->rows().hot_rows();
    const uint64_t bytes = hot != nullptr ? hot->wide_bytes() : 0;
    const uint64_t than = most != nullptr ? most->wide_bytes() : 0;
    if (bytes < than || bytes == 0 || (bytes == than && id > max_id)) continue;
    most = hot;
    max_id = id;
  }
  return most;
}

bool ExtraHotRows::reclaim(MemorySpace space, size_t bytes) {
  if (space != MemorySpace::kDevice) return false;
  uint64_t extra = 0;
  for (const auto& [id, sequence] : sequences_) {
    extra += sequence->rows().memory().extra_hot_rows;
  }
  uint64_t room = free_bytes(engine_.device().memory(MemorySpace::kDevice));
  if (extra == 0 || room + extra < bytes) return false;  // would not suffice
  streams_.wait_for_step();
  do {
    HotRows* const most = widest();
    if (most == nullptr) break;
    room += most->wide_bytes();
    most->narrow();
  } while (room < bytes);
  return true;
}

}  // namespace fasa
