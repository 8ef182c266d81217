#include "runtime/api/sequences/extra_hot_rows.h"

#include <algorithm>
#include <utility>

#include "runtime/api/memory_estimate.h"
#include "runtime/api/sequences/reclaim_pause.h"

namespace fasa {
namespace {

uint64_t free_bytes(const MemoryUse& use) {
  return use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
}

}  // namespace

uint64_t ExtraHotRows::needed_with(int hot_rows, int64_t tokens, int step_tokens) const {
  return estimate_memory(parts_.settings, hot_rows, tokens, step_tokens, parts_.prefetch.scratch())
      .device_total();
}

void ExtraHotRows::set(int hot_rows) {
  if (hot_rows == parts_.sequences.hot_rows()) return;
  parts_.scratch.drop_decode();  // was sized for the old number of hot rows
  parts_.sequences.set_hot_rows(hot_rows);
  parts_.prefetch.set_hot_rows(hot_rows);
}

void ExtraHotRows::fit(int64_t tokens, int step_tokens, const Load& load, bool may_grow) {
  constexpr uint64_t kMargin = uint64_t{16} << 10;  // descriptors, alignment
  if (!wanted_) return;
  for (const auto& [id, sequence] : parts_.sequences) {
    if (sequence->hot_bytes() > 0) return;
  }
  const MemoryUse use = parts_.device.memory(MemorySpace::kDevice);
  const uint64_t used =
      use.used_bytes - std::min(use.used_bytes, parts_.scratch.bytes() + load.held);
  const uint64_t room = (use.limit_bytes - std::min(use.limit_bytes, used + kMargin)) /
                        static_cast<uint64_t>(load.count);
  const auto fits = [&](int hot_rows) {
    const uint64_t need = needed_with(hot_rows, tokens, step_tokens);
    const uint64_t extra = may_grow ? need - needed_with(0, tokens, step_tokens) : 0;
    return need <= room && extra <= room - need;
  };
  // Below a whole set, misses need a fetch buffer, which takes memory too. So there are two ranges,
  // and within each fewer rows need less memory. If a range's first value does not fit, none does.
  const int set_size = std::min(*wanted_, largest_set(parts_.settings, tokens));
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

void ExtraHotRows::widen(std::span<const StepSequence> sequences) {
  const int reserved_slots = parts_.sequences.hot_rows();
  if (!wanted_) return;
  if (reserved_slots < *wanted_) return;  // even the wanted rows did not fit
  const ReclaimPause pause(parts_.reclaim_paused);
  for (const StepSequence& part : sequences) {
    KvSequence& sequence = parts_.sequences.find(part.sequence);
    if (part.mode != StepMode::kDecode || !sequence.hot_rows().may_widen()) continue;
    const int64_t reserved = sequence.reserved().row_pages * kPageTokens;
    const int slots = extra_hot_rows(parts_.settings, reserved_slots,
                                     std::max(reserved, sequence.length() + part.tokens),
                                     free_bytes(parts_.device.memory(MemorySpace::kDevice)));
    if (slots > 0) sequence.hot_rows().widen(slots);
  }
}

// The sequence with the most hot rows, of equals the oldest; null: there is none.
KvSequence* ExtraHotRows::widest() const {
  KvSequence* most = nullptr;
  uint64_t max_id = 0;
  for (const auto& [id, sequence] : parts_.sequences) {
    const uint64_t bytes = sequence->hot_rows().wide_bytes();
    const uint64_t than = most != nullptr ? most->hot_rows().wide_bytes() : 0;
    if (bytes < than || bytes == 0 || (bytes == than && id > max_id)) continue;
    most = sequence.get();
    max_id = id;
  }
  return most;
}

bool ExtraHotRows::reclaim(MemorySpace space, size_t bytes) {
  if (space != MemorySpace::kDevice) return false;
  uint64_t extra = 0;
  for (const auto& [id, sequence] : parts_.sequences) extra += sequence->hot_rows().wide_bytes();
  uint64_t room = free_bytes(parts_.device.memory(MemorySpace::kDevice));
  if (extra == 0 || room + extra < bytes) return false;  // would not suffice
  const ReclaimPause pause(parts_.reclaim_paused);
  parts_.streams.wait_for_step();
  do {
    KvSequence* const most = widest();
    if (most == nullptr) break;
    room += most->hot_rows().wide_bytes();
    most->hot_rows().narrow();
  } while (room < bytes);
  if (parts_.step) renew();
  return true;
}

// Streams must be idle. Updates the descriptors of an open step to its sequences' hot rows.
void ExtraHotRows::renew() {
  const StreamView control = parts_.streams.control();
  const OpenStep& step = *parts_.step;
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    KvSequence& sequence = parts_.sequences.find(step.sequences[i].sequence);
    sequence.hot_rows().prepare(control);
    const SequenceDesc now = sequence.describe();
    SequenceDesc& desc = step.slot->host(DescriptorBuffer::kStep)[i];
    desc.hot = now.hot;
    desc.hot_table = now.hot_table;
    desc.hot_rows = now.hot_rows;
  }
  step.slot->upload(control);
  parts_.device.synchronize(control);
}

}  // namespace fasa
