#include "runtime/api/sequences/row_copies.h"

#include <algorithm>
#include <utility>

#include "runtime/api/sequences/reclaim_pause.h"
#include "runtime/base/error.h"

namespace fasa {

// The one with the most copies; of equals `growing`, else the oldest sequence. Null: there is none.
KvSequence* RowCopies::max_copies(KvSequence* growing) const {
  KvSequence* most = growing != nullptr && growing->lent_copies()->copies() > 0 ? growing : nullptr;
  uint64_t max_id = 0;
  for (const auto& [id, sequence] : parts_.sequences) {
    const DeviceRows* const lent = sequence->lent_copies();
    if (lent == nullptr) continue;
    const int64_t than = most != nullptr ? most->lent_copies()->copies() : 0;
    const bool older = most != nullptr && most != growing && lent->copies() == than && id < max_id;
    if (lent->copies() <= than && !older) continue;
    most = sequence.get();
    max_id = id;
  }
  return most;
}

// Allocates a block, or takes the oldest page's block of the sequence with the most copies, so that
// sequences converge to equal numbers.
Buffer RowCopies::find_block(KvSequence& growing) {
  const auto bytes = static_cast<size_t>(parts_.settings.layout.row_block_bytes());
  try {
    return parts_.device.allocate(MemorySpace::kDevice, bytes, "row pages");
  } catch (const BudgetError&) {
    KvSequence* const most = max_copies(&growing);
    if (most == nullptr) return {};
    parts_.streams.order(most->work().last());  // its steps may read that page or write it back
    return most->take_oldest_copy();
  }
}

void RowCopies::copy_new_pages(std::span<const StepSequence> sequences) {
  if (!parts_.settings.device_copies) return;
  const ReclaimPause pause(parts_.reclaim_paused);
  for (const StepSequence& part : sequences) {
    KvSequence& sequence = parts_.sequences.find(part.sequence);
    if (sequence.lent_copies() == nullptr) continue;  // has all copies
    DeviceRows& rows = *sequence.lent_copies();
    const int64_t end = pages_of(sequence.length() + part.tokens);
    try {
      rows.reserve(end);
    } catch (const BudgetError&) {
      continue;
    }
    for (int64_t page = pages_of(sequence.length()); page < end; ++page) {
      if (rows.has(page)) continue;
      Buffer block = find_block(sequence);
      if (!block) break;
      rows.put(page, std::move(block));
    }
  }
}

bool RowCopies::reclaim(MemorySpace space, size_t bytes) {
  if (!parts_.settings.device_copies) return false;
  const ReclaimPause pause(parts_.reclaim_paused);
  const bool copies = space == MemorySpace::kDevice && max_copies(nullptr) != nullptr;
  if (!copies && held().tables == 0) return false;
  if (space == MemorySpace::kDevice && !could_fit(bytes)) return false;  // won't suffice
  parts_.streams.wait_for_step();
  if (copies) {
    give_up(bytes);
  } else {
    drop_tables();
  }
  return true;
}

RowCopies::Bytes RowCopies::held() const {
  Bytes bytes;
  for (const auto& [id, sequence] : parts_.sequences) {
    const DeviceRows* const lent = sequence->lent_copies();
    if (lent == nullptr) continue;
    bytes.rows += lent->copy_bytes();
    bytes.tables += lent->table_bytes();
  }
  return bytes;
}

bool RowCopies::could_fit(size_t bytes) const {
  const MemoryUse use = parts_.device.memory(MemorySpace::kDevice);
  const Bytes copies = held();
  const uint64_t kept = use.used_bytes - std::min(use.used_bytes, copies.rows + copies.tables);
  return bytes <= use.limit_bytes - std::min(use.limit_bytes, kept);
}

// Streams must be idle. The descriptors of an open step no longer name the tables.
void RowCopies::drop_tables() {
  for (const auto& [id, sequence] : parts_.sequences) {
    if (sequence->lent_copies() != nullptr) sequence->lent_copies()->clear();
  }
  if (!parts_.step) return;
  for (const auto kind : {DescriptorBuffer::kStep, DescriptorBuffer::kRestore}) {
    for (SequenceDesc& desc : parts_.step->slot->host(kind)) {
      desc.device_row_blocks = nullptr;
      desc.device_row_pages = 0;
    }
  }
  for (auto& blocks : parts_.step->tables.device_row_blocks) blocks = {};
  parts_.step->slot->upload(parts_.streams.control());
  parts_.device.synchronize(parts_.streams.control());
}

// Frees at least one copy, and enough for `bytes`. Streams must be idle.
void RowCopies::give_up(size_t bytes) {
  const MemoryUse use = parts_.device.memory(MemorySpace::kDevice);
  uint64_t room = use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
  do {
    KvSequence* const most = max_copies(nullptr);
    if (most == nullptr) break;
    room += most->take_oldest_copy().bytes();
  } while (room < bytes);
  if (!parts_.step) return;  // the next step uploads its tables
  for (const StepSequence& part : parts_.step->sequences) {
    parts_.sequences.find(part.sequence).upload_tables(parts_.streams.control());
  }
  parts_.device.synchronize(parts_.streams.control());
}

}  // namespace fasa
