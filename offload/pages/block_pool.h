// Reference-counted blocks of one size (pages of the KV cache), cut from slabs of device memory
// that never move. Not thread-safe: the runtime that owns a pool is used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "offload/device.h"
#include "offload/fence.h"
#include "runtime/base/ids.h"

namespace fasa {

class BlockPool;

// A number of reserved blocks; the destructor returns the unused ones. Move-only. The pool outlives
// it and does not move meanwhile.
class BlockReservation {
 public:
  BlockReservation() = default;
  BlockReservation(BlockReservation&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), blocks_(std::exchange(other.blocks_, 0)) {}
  BlockReservation& operator=(BlockReservation&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(blocks_, other.blocks_);
    return *this;
  }
  ~BlockReservation() { cancel(); }

  int64_t blocks() const { return blocks_; }
  void cancel() noexcept;
  // Returns the blocks beyond `blocks`.
  void shrink(int64_t blocks) noexcept;

 private:
  friend class BlockPool;
  BlockReservation(BlockPool* pool, int64_t blocks) : pool_(pool), blocks_(blocks) {}
  BlockPool* pool_ = nullptr;
  int64_t blocks_ = 0;
};

class BlockPool {
 public:
  // `purpose` names the pool in budget errors ("slice pages"). Blocks are rounded up to 64 bytes.
  // `fences`, which outlives the pool, is asked before memory is freed that released blocks may
  // still have readers in; null: streams must be done with released blocks.
  BlockPool(Device& device, MemorySpace space, size_t block_bytes, std::string purpose,
            Fences* fences = nullptr);
  BlockPool(const BlockPool&) = delete;  // tables and reservations point to it
  BlockPool& operator=(const BlockPool&) = delete;

  // A block with one reference, contents indeterminate. If none is free, grows the pool by an
  // eighth, or by single blocks if the budget is short. Throws BudgetError; then nothing changes.
  PageId allocate();
  // The same from a reservation; never fails while it has blocks left.
  PageId allocate(BlockReservation& reservation) noexcept;

  // Reserves `blocks` blocks. Missing ones are allocated as one exact slab, so that a known length
  // has no slack. Throws BudgetError; then nothing changes.
  [[nodiscard]] BlockReservation reserve(int64_t blocks);

  // Moves the blocks of `from` to `into`, which is empty or of this pool.
  void merge(BlockReservation& into, BlockReservation& from) noexcept;

  void retain(PageId page) noexcept;
  // O(1). The last reference frees the block. It may be reused at once: take_fence() tells its new
  // owner what to come after. When nothing is in use or reserved, all memory is freed.
  void release(PageId page, Fence last_use = {}) noexcept;
  // The last use of the blocks that were allocated since the last call.
  Fence take_fence() noexcept { return std::exchange(taken_, {}); }
  // Frees wholly unused slabs, the newest first, as far as reservations allow: after a call that
  // was undone the pool holds no more than before.
  void trim() noexcept;

  std::byte* data(PageId page) const { return blocks_[index_of(page)].data; }
  int64_t references(PageId page) const { return blocks_[index_of(page)].references; }

  Device& device() const { return device_; }
  MemorySpace space() const { return space_; }
  size_t block_bytes() const { return block_bytes_; }
  int64_t used_blocks() const { return used_; }
  int64_t free_blocks() const {
    return static_cast<int64_t>(free_.size());
  }  // includes reserved ones
  int64_t reserved_blocks() const { return reserved_; }
  uint64_t held_bytes() const { return static_cast<uint64_t>(held_) * block_bytes_; }

 private:
  friend class BlockReservation;
  struct Block {
    std::byte* data = nullptr;
    int32_t references = 0;
    uint32_t slab = 0;
    Fence last_use;  // of those who released it
  };
  struct Slab {
    Buffer memory;
    std::vector<uint32_t> ids;  // of its blocks, ascending addresses
    int64_t free = 0;
    uint64_t number = 0;  // of all slabs so far
  };

  void add_slab(int64_t count);
  bool passed(const Slab& slab) const noexcept;
  void drop_slab(uint32_t slab) noexcept;
  void give_back_if_idle() noexcept;
  PageId take_free() noexcept;

  Device& device_;
  MemorySpace space_;
  size_t block_bytes_;
  std::string purpose_;
  Fences* const fences_;
  Fence taken_;
  std::vector<Block> blocks_;         // by PageId
  std::vector<Slab> slabs_;           // empty slots have no ids
  std::vector<uint32_t> free_;        // ids of free blocks, the last is taken first
  std::vector<uint32_t> unused_ids_;  // ids whose slab was given back
  int64_t used_ = 0;
  int64_t held_ = 0;
  int64_t reserved_ = 0;
  uint64_t slabs_so_far_ = 0;
};

}  // namespace fasa
