// Hot rows beyond those that sequences were promised (placement.hot_rows = auto): up to 16 sets of
// what is left when a step has all that it needs, given up before anybody is refused memory.
#include <algorithm>

#include "runtime/doors/reclaim_pause.h"

namespace fasa {
namespace {

uint64_t free_bytes(const MemoryUse& use) {
  return use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
}

}  // namespace

// Last of all that a step takes memory for: nothing here can fail for memory.
void Runtime::Impl::widen_hot_rows(std::span<const StepSequence> sequences) {
  if (!hot_rows_wanted_) return;
  if (settings_.layout.hot_rows < *hot_rows_wanted_) return;  // not even those had room
  const ReclaimPause pause(reclaim_paused_);
  for (const StepSequence& part : sequences) {
    KvSequence& sequence = find(part.sequence);
    if (part.mode != StepMode::kDecode || !sequence.may_widen()) continue;
    const int64_t reserved = sequence.reserved().row_pages * kPageTokens;
    const int slots = spare_hot_rows(settings_, std::max(reserved, sequence.length() + part.tokens),
                                     free_bytes(device_.memory(MemorySpace::kDevice)));
    if (slots > 0) sequence.widen_hot_rows(slots);
  }
}

// Of sequences with equally many, the oldest. Null where there are none.
KvSequence* Runtime::Impl::widest() const {
  KvSequence* most = nullptr;
  uint64_t most_id = 0;
  for (const auto& [id, sequence] : sequences_) {
    const uint64_t bytes = sequence->wide_bytes();
    const uint64_t than = most != nullptr ? most->wide_bytes() : 0;
    if (bytes < than || bytes == 0 || (bytes == than && id > most_id)) continue;
    most = sequence.get();
    most_id = id;
  }
  return most;
}

bool Runtime::Impl::reclaim_hot_rows(MemorySpace space, size_t bytes) {
  if (space != MemorySpace::kDevice) return false;
  uint64_t spare = 0;
  for (const auto& [id, sequence] : sequences_) spare += sequence->wide_bytes();
  uint64_t room = free_bytes(device_.memory(MemorySpace::kDevice));
  if (spare == 0 || room + spare < bytes) return false;  // nothing lost for nothing
  const ReclaimPause pause(reclaim_paused_);
  if (step_ && step_->appended > 0) step_->slot->mark_done(step_->compute);
  drain();
  do {
    KvSequence* const most = widest();
    if (most == nullptr) break;
    room += most->wide_bytes();
    most->narrow_hot_rows();
  } while (room < bytes);
  if (step_) renew_hot_rows();
  return true;
}

// Streams are idle. The descriptors of an open step point to what its sequences have now.
void Runtime::Impl::renew_hot_rows() {
  for (size_t i = 0; i < step_->sequences.size(); ++i) {
    KvSequence& sequence = find(step_->sequences[i].sequence);
    sequence.empty_hot_rows(control_.view());
    const SequenceDesc now = sequence.describe();
    SequenceDesc& desc = step_->slot->host(DescriptorBuffer::kStep)[i];
    desc.hot = now.hot;
    desc.hot_table = now.hot_table;
    desc.hot_rows = now.hot_rows;
  }
  step_->slot->upload(control_.view());
  device_.synchronize(control_.view());
}

}  // namespace fasa
