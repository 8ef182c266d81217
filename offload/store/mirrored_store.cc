#include "offload/store/mirrored_store.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {

// The one with the most copies; of equals `growing`, else the oldest. Null: there is none.
HostRows* MirroredStore::max_copies(HostRows* growing) const {
  HostRows* most = growing;
  int64_t copies = growing != nullptr ? growing->lent()->copies() : 0;
  for (HostRows* rows : sequences_) {
    if (rows->lent() == nullptr || rows->lent()->copies() <= copies) continue;
    most = rows;
    copies = rows->lent()->copies();
  }
  return copies > 0 ? most : nullptr;
}

// Allocates a block, or takes the oldest page's block of the sequence with the most copies, so that
// sequences converge to equal numbers.
Buffer MirroredStore::find_block(HostRows& growing) {
  const auto bytes = static_cast<size_t>(group_.layout.row_block_bytes());
  try {
    return device_.allocate(MemorySpace::kDevice, bytes, "row pages");
  } catch (const BudgetError&) {
    HostRows* const most = max_copies(&growing);
    if (most == nullptr) return {};
    fences_.order(most->last_use());  // its steps may read that page or write it back
    return most->take_oldest_copy();
  }
}

void MirroredStore::lend_copies(SequenceRows& rows, int64_t first, int64_t end) {
  auto& growing = static_cast<HostRows&>(rows);  // this store opened it
  DeviceCopies* const lent = growing.lent();
  if (lent == nullptr) return;  // has all copies
  try {
    lent->reserve(end);
  } catch (const BudgetError&) {
    return;
  }
  for (int64_t page = first; page < end; ++page) {
    if (lent->has(page)) continue;
    Buffer block = find_block(growing);
    if (!block) return;
    lent->put(page, std::move(block));
  }
}

bool MirroredStore::reclaim(MemorySpace space, size_t bytes) {
  const bool copies = space == MemorySpace::kDevice && max_copies(nullptr) != nullptr;
  if (!copies && held().tables == 0) return false;
  if (space == MemorySpace::kDevice && !could_fit(bytes)) return false;  // won't suffice
  fences_.wait(fences_.latest());
  if (copies) {
    give_up(bytes);
    return true;
  }
  for (HostRows* rows : sequences_) {
    if (rows->lent() != nullptr) rows->lent()->clear();
  }
  return true;
}

MirroredStore::Bytes MirroredStore::held() const {
  Bytes bytes;
  for (HostRows* rows : sequences_) {
    if (rows->lent() == nullptr) continue;
    bytes.rows += rows->lent()->copy_bytes();
    bytes.tables += rows->lent()->table_bytes();
  }
  return bytes;
}

bool MirroredStore::could_fit(size_t bytes) const {
  const MemoryUse use = device_.memory(MemorySpace::kDevice);
  const Bytes copies = held();
  const uint64_t kept = use.used_bytes - std::min(use.used_bytes, copies.rows + copies.tables);
  return bytes <= use.limit_bytes - std::min(use.limit_bytes, kept);
}

// Frees at least one copy, and enough for `bytes`.
void MirroredStore::give_up(size_t bytes) {
  const MemoryUse use = device_.memory(MemorySpace::kDevice);
  uint64_t room = use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
  do {
    HostRows* const most = max_copies(nullptr);
    if (most == nullptr) break;
    room += most->take_oldest_copy().bytes();
  } while (room < bytes);
}

}  // namespace fasa
