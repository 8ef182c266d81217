// One sequence's pages in one pool, and the address array that kernels read. Pages are numbered
// from position 0. The caller decides what pages hold (rows: every page of the sequence; slices:
// the sealed ones).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "offload/pages/block_pool.h"
#include "offload/pages/pointer_array.h"

namespace fasa {

class PageTable {
 public:
  // The pool outlives the table.
  explicit PageTable(BlockPool& pool);
  PageTable(PageTable&& other) noexcept = default;
  PageTable& operator=(PageTable&& other) noexcept;
  ~PageTable();  // releases the pages; streams must be done with the address array

  // Work that uses the pages: they are released under the latest. A fork begins with its parent's.
  void used_by(Fence work) noexcept { last_use_ = std::max(last_use_, work); }
  Fence last_use() const { return last_use_; }

  Device& device() const { return pool_->device(); }
  int64_t pages() const { return static_cast<int64_t>(ids_.size()); }
  PageId page(int64_t index) const { return ids_[static_cast<size_t>(index)]; }
  std::span<std::byte* const> blocks() const { return addresses_.values(); }
  bool shared(int64_t index) const { return pool_->references(page(index)) > 1; }

  // Reserves growth to `pages` pages with pages [first_written, pages) writable, so that grow() and
  // make_writable() up to there cannot fail. Throws BudgetError; then nothing changes. A later fork
  // shares pages again: reserve again before writing.
  void reserve(int64_t pages, int64_t first_written);
  int64_t reserved_blocks() const { return reservation_.blocks(); }

  // Reserves `blocks` blocks for growth up to `pages` pages; unshared pages that are dropped on the
  // way are reserved for it again. Throws BudgetError; then nothing changes.
  void reserve_window(int64_t pages, int64_t blocks);
  void cancel_window() noexcept;

  // Grows to at least `pages` pages, contents indeterminate; new pages before `first` are dropped
  // ones. Throws BudgetError; then nothing changes.
  void grow(int64_t pages, int64_t first = 0);
  void truncate(int64_t pages) noexcept;
  // Releases pages [first, end), which keep their indices and have no address. The upload of their
  // entries must come after their last use.
  void drop(int64_t first, int64_t end);
  bool dropped(int64_t index) const { return page(index) == kDropped; }
  void clear() noexcept;  // frees the address array too; streams must be done with it
  // Snapshot of the memory, and the way back for a call that fails. Streams must be done with what
  // it added.
  struct Mark {
    int64_t pages = 0;
    int64_t capacity = 0;  // of the address array
    int64_t reserved = 0;
    int64_t window_end = 0;
    int64_t window_blocks = 0;
  };
  Mark mark() const;
  void back_to(const Mark& mark) noexcept;
  // A table that shares the first `pages` pages. Throws BudgetError (for its address array).
  PageTable fork(int64_t pages) const;
  // Copy on write: if the page is shared, allocates a block and enqueues a copy of the contents.
  // Returns true if it copied. Throws BudgetError; then nothing changes. `stream` must come after
  // the last use of free blocks, and used_by() must have named this work.
  bool make_writable(int64_t index, StreamView stream);

  // Uploads changed addresses in stream order.
  void upload(StreamView stream) { addresses_.upload(stream); }
  std::byte* const* device_data() const { return addresses_.device_data(); }
  uint64_t device_bytes() const { return addresses_.device_bytes(); }
  uint64_t host_bytes() const { return addresses_.host_bytes(); }

 private:
  static constexpr PageId kDropped{UINT32_MAX};

  PageId take_block();
  void promise(int64_t blocks, int64_t pages);
  void release(PageId page) noexcept;

  BlockPool* pool_;
  std::vector<PageId> ids_;
  PointerArray addresses_;
  BlockReservation reservation_;
  int64_t window_end_ = 0;     // end of the pages for which dropped ones are reserved again
  int64_t window_blocks_ = 0;  // taken and reserved, while growing there
  int64_t dropped_ = 0;
  Fence last_use_;
};

}  // namespace fasa
