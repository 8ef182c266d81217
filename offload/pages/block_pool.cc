#include "offload/pages/block_pool.h"

#include <algorithm>
#include <exception>
#include <limits>

#include "kernels/layout.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

template <typename T>
void reserve_doubling(std::vector<T>& vector, size_t size) {
  if (size > vector.capacity()) vector.reserve(std::max(size, 2 * vector.capacity()));
}

}  // namespace

void BlockReservation::cancel() noexcept {
  if (pool_ == nullptr) return;
  pool_->reserved_ -= blocks_;
  blocks_ = 0;
  pool_->give_back_if_idle();
  pool_ = nullptr;
}

void BlockReservation::shrink(int64_t blocks) noexcept {
  if (blocks <= 0) return cancel();
  if (blocks_ <= blocks) return;
  pool_->reserved_ -= blocks_ - blocks;
  blocks_ = blocks;
}

BlockPool::BlockPool(Device& device, MemorySpace space, size_t block_bytes, std::string purpose,
                     Fences* fences)
    : device_(device),
      space_(space),
      block_bytes_(
          static_cast<size_t>(align_up(static_cast<int64_t>(std::max<size_t>(block_bytes, 1))))),
      purpose_(std::move(purpose)),
      fences_(fences) {}

PageId BlockPool::allocate() {
  if (free_blocks() == reserved_) {
    const int64_t blocks = std::max<int64_t>(held_ / 8, 1);
    try {
      add_slab(blocks);
    } catch (const BudgetError&) {
      if (blocks == 1) throw;
      add_slab(1);
    }
  }
  return take_free();
}

PageId BlockPool::allocate(BlockReservation& reservation) noexcept {
  --reservation.blocks_;
  --reserved_;
  return take_free();
}

BlockReservation BlockPool::reserve(int64_t blocks) {
  if (blocks <= 0) return {};
  const int64_t missing = blocks - (free_blocks() - reserved_);
  if (missing > 0) add_slab(missing);
  reserved_ += blocks;
  return {this, blocks};
}

void BlockPool::merge(BlockReservation& into, BlockReservation& from) noexcept {
  into.pool_ = this;
  into.blocks_ += std::exchange(from.blocks_, 0);
  from.pool_ = nullptr;
}

PageId BlockPool::take_free() noexcept {
  const uint32_t id = free_.back();
  free_.pop_back();
  blocks_[id].references = 1;
  taken_ = std::max(taken_, blocks_[id].last_use);
  --slabs_[blocks_[id].slab].free;
  ++used_;
  return PageId{id};
}

void BlockPool::retain(PageId page) noexcept { ++blocks_[index_of(page)].references; }

void BlockPool::release(PageId page, Fence last_use) noexcept {
  Block& block = blocks_[index_of(page)];
  block.last_use = std::max(block.last_use, last_use);
  if (--block.references > 0) return;
  free_.push_back(index_of(page));  // within the capacity that add_slab() reserved
  ++slabs_[block.slab].free;
  --used_;
  give_back_if_idle();
}

void BlockPool::give_back_if_idle() noexcept {
  if (used_ == 0 && reserved_ == 0) trim();
}

void BlockPool::trim() noexcept {
  const auto unneeded = [this](const Slab& slab) {
    const auto count = static_cast<int64_t>(slab.ids.size());
    return count > 0 && slab.free == count && held_ - used_ - count >= reserved_;
  };
  bool dropped = false;
  for (;; dropped = true) {
    const Slab* newest = nullptr;
    for (const Slab& slab : slabs_) {
      if (unneeded(slab) && (newest == nullptr || slab.number > newest->number)) newest = &slab;
    }
    if (newest == nullptr || !passed(*newest)) break;
    drop_slab(static_cast<uint32_t>(newest - slabs_.data()));
  }
  if (!dropped) return;
  std::erase_if(free_, [&](uint32_t id) { return blocks_[id].data == nullptr; });
}

// Waits for the last use of its blocks, because its memory leaves. False if that failed for lack of
// host memory: the slab stays until the next time.
bool BlockPool::passed(const Slab& slab) const noexcept {
  if (fences_ == nullptr) return true;
  Fence last_use;
  for (const uint32_t id : slab.ids) last_use = std::max(last_use, blocks_[id].last_use);
  try {
    fences_->wait(last_use);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void BlockPool::drop_slab(uint32_t slab) noexcept {
  Slab& dropped = slabs_[slab];
  for (auto id = dropped.ids.rbegin(); id != dropped.ids.rend(); ++id) {
    blocks_[*id] = {};
    unused_ids_.push_back(*id);  // within the capacity that add_slab() reserved
  }
  held_ -= static_cast<int64_t>(dropped.ids.size());
  dropped = {};
}

// Everything that can throw comes before any change.
void BlockPool::add_slab(int64_t count) {
  size_t bytes = 0;
  const int64_t known = static_cast<int64_t>(blocks_.size() - unused_ids_.size());
  if (__builtin_mul_overflow(static_cast<size_t>(count), block_bytes_, &bytes) ||
      count > std::numeric_limits<uint32_t>::max() - known) {
    const MemoryUse use = device_.memory(space_);
    throw BudgetError(space_ == MemorySpace::kDevice ? "device_memory" : "host_memory",
                      std::numeric_limits<uint64_t>::max(), use.used_bytes, use.limit_bytes,
                      purpose_);
  }
  const auto blocks = static_cast<size_t>(count);
  const size_t reused = std::min(blocks, unused_ids_.size());
  const size_t all_ids = blocks_.size() + (blocks - reused);
  Slab slab;
  slab.ids.reserve(blocks);
  slabs_.reserve(slabs_.size() + 1);
  reserve_doubling(blocks_, all_ids);
  reserve_doubling(free_, all_ids);
  reserve_doubling(unused_ids_, all_ids);
  slab.memory = device_.allocate(space_, bytes, purpose_);

  uint32_t slot = 0;
  while (slot < slabs_.size() && !slabs_[slot].ids.empty()) ++slot;
  for (size_t i = 0; i < blocks; ++i) {
    uint32_t id = static_cast<uint32_t>(blocks_.size());
    if (unused_ids_.empty()) {
      blocks_.emplace_back();
    } else {
      id = unused_ids_.back();
      unused_ids_.pop_back();
    }
    blocks_[id] = {slab.memory.data() + i * block_bytes_, 0, slot, {}};
    slab.ids.push_back(id);
  }
  free_.insert(free_.end(), slab.ids.rbegin(),
               slab.ids.rend());  // lowest addresses are taken first
  slab.free = count;
  slab.number = slabs_so_far_++;
  held_ += count;
  if (slot == slabs_.size()) slabs_.emplace_back();
  slabs_[slot] = std::move(slab);
}

}  // namespace fasa
