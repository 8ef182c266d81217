// One sequence's pages in one pool, and the array of their addresses that kernels read. Pages are
// counted from position 0; what a page holds is the caller's business (rows: every page of the
// sequence, slices: the sealed ones).
#pragma once

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

  int64_t pages() const { return static_cast<int64_t>(ids_.size()); }
  PageId page(int64_t index) const { return ids_[static_cast<size_t>(index)]; }
  std::span<std::byte* const> blocks() const { return addresses_.values(); }
  bool shared(int64_t index) const { return pool_->references(page(index)) > 1; }

  // Promises growth to `pages` pages with pages [first_written, pages) writable, so that grow() and
  // make_writable() up to there cannot fail. Throws BudgetError; nothing changes then. A later fork
  // shares pages anew: reserve again before writing.
  void reserve(int64_t pages, int64_t first_written);
  int64_t reserved_blocks() const { return reservation_.blocks(); }

  // Promises `blocks` blocks to the growth up to `pages` pages: those of pages that are dropped on the
  // way, and held by nobody else, are promised to it again. Throws BudgetError; nothing changes then.
  void reserve_window(int64_t pages, int64_t blocks);
  void cancel_window() noexcept;

  // To at least `pages` pages, contents indeterminate. Throws BudgetError; nothing changes then.
  void grow(int64_t pages);
  void truncate(int64_t pages) noexcept;
  // Gives back pages [first, end), which keep their places and have no address. Once each; streams are
  // done with them.
  void drop(int64_t first, int64_t end);
  bool dropped(int64_t index) const { return page(index) == kDropped; }
  void clear() noexcept;  // the array of addresses goes too; streams are done with it
  // Pages that there is room for, and back to such a number, which holds all pages; streams are done
  // with what has been taken since.
  int64_t capacity() const { return addresses_.capacity(); }
  void shrink(int64_t capacity) noexcept { addresses_.shrink(capacity); }
  // A table that shares the first `pages` pages. Throws BudgetError (for its address array).
  PageTable fork(int64_t pages) const;
  // Copy on write: where others hold the page too, takes a block of its own and enqueues the copy
  // of the contents. True where it copied. Throws BudgetError; nothing changes then. The old block
  // stays with the others; should they free it, its next owner must write behind `stream`.
  bool make_writable(int64_t index, StreamView stream);

  // Brings the device's addresses up to date, in stream order.
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
  int64_t window_end_ = 0;     // pages up to which dropped ones are promised again
  int64_t window_blocks_ = 0;  // taken and promised, while growing there
  int64_t dropped_ = 0;
};

}  // namespace fasa
