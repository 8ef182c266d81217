// Copies of row pages on the device (placement.rows = auto): dealt out when a step has all that it
// needs, given up before anything else is refused memory.
#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/doors/reclaim_pause.h"

namespace fasa {

// Of sequences with equally many, `growing`, or the oldest sequence. Null where there are none.
DeviceRows* Runtime::Impl::most_copies(DeviceRows* growing) const {
  DeviceRows* most = growing != nullptr && growing->copies() > 0 ? growing : nullptr;
  uint64_t most_id = 0;
  for (const auto& [id, sequence] : sequences_) {
    DeviceRows& rows = sequence->device_rows();
    const int64_t than = most != nullptr ? most->copies() : 0;
    const bool older = most != nullptr && most != growing && rows.copies() == than && id < most_id;
    if (rows.copies() <= than && !older) continue;
    most = &rows;
    most_id = id;
  }
  return most;
}

// Fresh memory, or the block of the oldest page of the sequence with the most copies: so all come
// to have equally many. `drained`: nothing was enqueued since.
Buffer Runtime::Impl::find_copy_block(DeviceRows& growing, bool& drained) {
  const auto bytes = static_cast<size_t>(settings_.layout.row_block_bytes());
  try {
    return device_.allocate(MemorySpace::kDevice, bytes, "row pages");
  } catch (const BudgetError&) {
    DeviceRows* most = most_copies(&growing);
    if (most == nullptr) return {};
    if (!drained) drain();  // steps under way may read that page, and write it back
    drained = true;
    return most->take_oldest();
  }
}

// Last of all that a step takes memory for: nothing here can fail for memory. Pages that begin with
// this step only, for the others have rows already.
void Runtime::Impl::copy_new_pages(std::span<const StepSequence> sequences) {
  if (!settings_.device_copies) return;
  const ReclaimPause pause(reclaim_paused_);
  bool drained = false;
  for (const StepSequence& part : sequences) {
    const KvSequence& sequence = find(part.sequence);
    DeviceRows& rows = find(part.sequence).device_rows();
    const int64_t end = pages_of(sequence.length() + part.tokens);
    try {
      rows.reserve(end);
    } catch (const BudgetError&) {
      continue;
    }
    for (int64_t page = pages_of(sequence.length()); page < end; ++page) {
      if (rows.has(page)) continue;
      Buffer block = find_copy_block(rows, drained);
      if (!block) break;
      rows.put(page, std::move(block));
    }
  }
}

// Graphs first: they cost nothing but time to make again.
bool Runtime::Impl::reclaim(MemorySpace space, size_t bytes) {
  if (reclaim_paused_) return false;
  if (space == MemorySpace::kDevice && graphs_.bytes(device_) > 0) {
    graphs_.clear();
    return true;
  }
  return reclaim_hot_rows(space, bytes) || reclaim_copies(space, bytes);
}

bool Runtime::Impl::reclaim_copies(MemorySpace space, size_t bytes) {
  if (!settings_.device_copies) return false;
  const ReclaimPause pause(reclaim_paused_);
  const bool copies = space == MemorySpace::kDevice && most_copies(nullptr) != nullptr;
  if (!copies && copy_bytes().tables == 0) return false;
  if (space == MemorySpace::kDevice && !could_fit(bytes)) return false;  // nothing lost for nothing
  if (step_ && step_->appended > 0) step_->slot->mark_done(step_->compute);
  drain();
  if (copies) {
    give_up_copies(bytes);
  } else {
    drop_copy_tables();
  }
  return true;
}

Runtime::Impl::CopyBytes Runtime::Impl::copy_bytes() const {
  CopyBytes bytes;
  for (const auto& [id, sequence] : sequences_) {
    bytes.rows += sequence->device_rows().copy_bytes();
    bytes.tables += sequence->device_rows().table_bytes();
  }
  return bytes;
}

bool Runtime::Impl::could_fit(size_t bytes) const {
  const MemoryUse use = device_.memory(MemorySpace::kDevice);
  const CopyBytes copies = copy_bytes();
  const uint64_t kept = use.used_bytes - std::min(use.used_bytes, copies.rows + copies.tables);
  return bytes <= use.limit_bytes - std::min(use.limit_bytes, kept);
}

// Streams are idle. The descriptors of an open step forget them.
void Runtime::Impl::drop_copy_tables() {
  for (const auto& [id, sequence] : sequences_) sequence->device_rows().clear();
  if (!step_) return;
  for (const auto kind : {DescriptorBuffer::kStep, DescriptorBuffer::kRestore}) {
    for (SequenceDesc& desc : step_->slot->host(kind)) {
      desc.device_row_blocks = nullptr;
      desc.device_row_pages = 0;
    }
  }
  for (auto& blocks : step_->tables.device_row_blocks) blocks = {};
  step_->slot->upload(control_.view());
  device_.synchronize(control_.view());
}

// At least one, and as many as `bytes` need. Streams are idle.
void Runtime::Impl::give_up_copies(size_t bytes) {
  const MemoryUse use = device_.memory(MemorySpace::kDevice);
  uint64_t room = use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
  do {
    DeviceRows* most = most_copies(nullptr);
    if (most == nullptr) break;
    room += most->take_oldest().bytes();
  } while (room < bytes);
  if (!step_) return;  // the next step uploads its tables
  for (const StepSequence& part : step_->sequences) {
    find(part.sequence).upload_tables(control_.view());
  }
  device_.synchronize(control_.view());
}

}  // namespace fasa
