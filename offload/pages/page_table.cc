#include "offload/pages/page_table.h"

#include <algorithm>
#include <utility>

namespace fasa {

PageTable::PageTable(BlockPool& pool) : pool_(&pool), addresses_(pool.device(), "page tables") {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  if (this == &other) return *this;
  cancel_window();
  truncate(0);
  pool_ = other.pool_;
  ids_ = std::move(other.ids_);
  other.ids_.clear();
  addresses_ = std::move(other.addresses_);
  reservation_ = std::move(other.reservation_);
  window_end_ = std::exchange(other.window_end_, 0);
  window_blocks_ = std::exchange(other.window_blocks_, 0);
  dropped_ = std::exchange(other.dropped_, 0);
  last_use_ = other.last_use_;
  return *this;
}

PageTable::~PageTable() {
  cancel_window();
  truncate(0);
}

PageId PageTable::take_block() {
  return reservation_.blocks() > 0 ? pool_->allocate(reservation_) : pool_->allocate();
}

void PageTable::reserve(int64_t pages, int64_t first_written) {
  int64_t needed = std::max<int64_t>(pages - this->pages(), 0);
  for (int64_t i = first_written; i < std::min(pages, this->pages()); ++i) needed += shared(i);
  promise(needed - reservation_.blocks(), pages);
}

// Reserves `blocks` more blocks, and table entries for `pages` pages.
void PageTable::promise(int64_t blocks, int64_t pages) {
  BlockReservation more = pool_->reserve(blocks);
  try {
    ids_.reserve(static_cast<size_t>(std::max(pages, this->pages())));
    addresses_.reserve(pages);
  } catch (...) {
    more.cancel();
    pool_->trim();
    throw;
  }
  pool_->merge(reservation_, more);
}

void PageTable::reserve_window(int64_t pages, int64_t blocks) {
  const int64_t held = this->pages() - dropped_ + reservation_.blocks();
  promise(blocks - held, pages);
  window_end_ = std::max(window_end_, pages);
  window_blocks_ = std::max(window_blocks_, blocks);
}

void PageTable::cancel_window() noexcept {
  window_end_ = window_blocks_ = 0;
  reservation_.cancel();
}

PageTable::Mark PageTable::mark() const {
  return {.pages = pages(),
          .capacity = addresses_.capacity(),
          .reserved = reservation_.blocks(),
          .window_end = window_end_,
          .window_blocks = window_blocks_};
}

void PageTable::back_to(const Mark& mark) noexcept {
  window_end_ = mark.window_end;
  window_blocks_ = mark.window_blocks;
  truncate(mark.pages);
  reservation_.shrink(mark.reserved);
  addresses_.shrink(mark.capacity);
}

// Releases a page that is already removed from the counts.
void PageTable::release(PageId page) noexcept {
  const bool freed = pool_->references(page) == 1;
  pool_->release(page, last_use_);
  if (!freed || reservation_.blocks() >= window_end_ - pages()) return;
  if (pages() - dropped_ + reservation_.blocks() >= window_blocks_) return;
  if (pool_->free_blocks() == pool_->reserved_blocks()) return;
  BlockReservation again = pool_->reserve(1);
  pool_->merge(reservation_, again);
}

void PageTable::drop(int64_t first, int64_t end) {
  if (first >= end) return;
  addresses_.prepare_overwrite(first);
  for (int64_t i = first; i < end; ++i) {
    if (dropped(i)) continue;
    const PageId page = std::exchange(ids_[static_cast<size_t>(i)], kDropped);
    addresses_.set(i, nullptr);
    ++dropped_;
    release(page);
  }
}

void PageTable::grow(int64_t pages, int64_t first) {
  if (pages <= this->pages()) return;
  const int64_t before = this->pages();
  first = std::clamp(first, before, pages);
  ids_.reserve(static_cast<size_t>(pages));
  const int64_t missing = pages - first - reservation_.blocks();
  BlockReservation more;
  if (missing > 1) more = pool_->reserve(missing);
  addresses_.reserve(pages);
  addresses_.prepare_overwrite(before);
  for (; this->pages() < first; ++dropped_) {
    ids_.push_back(kDropped);
    addresses_.append(nullptr);
  }
  if (missing == 1) {
    // Decoding grows page by page: the pool grows with slack.
    ids_.push_back(pool_->allocate());
    addresses_.append(pool_->data(ids_.back()));
  }
  while (this->pages() < pages) {
    ids_.push_back(pool_->allocate(more.blocks() > 0 ? more : reservation_));
    addresses_.append(pool_->data(ids_.back()));
  }
}

void PageTable::truncate(int64_t pages) noexcept {
  while (this->pages() > pages) {
    const PageId last = ids_.back();
    ids_.pop_back();
    if (last == kDropped) {
      --dropped_;
    } else {
      release(last);
    }
  }
  addresses_.truncate(pages);
}

void PageTable::clear() noexcept {
  truncate(0);
  addresses_.clear();
}

PageTable PageTable::fork(int64_t pages) const {
  PageTable copy(*pool_);
  copy.last_use_ = last_use_;
  const int64_t count = std::min(pages, this->pages());
  copy.ids_.reserve(static_cast<size_t>(count));
  copy.addresses_.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    copy.ids_.push_back(page(i));
    copy.addresses_.append(blocks()[static_cast<size_t>(i)]);
    if (dropped(i)) {
      ++copy.dropped_;
    } else {
      pool_->retain(page(i));
    }
  }
  return copy;
}

bool PageTable::make_writable(int64_t index, StreamView stream) {
  if (!shared(index)) return false;
  addresses_.prepare_overwrite(index);
  const PageId old = page(index);
  const PageId own = take_block();
  const CopyKind kind =
      pool_->space() == MemorySpace::kDevice ? CopyKind::kDeviceToDevice : CopyKind::kHostToHost;
  try {
    pool_->device().copy(pool_->data(own), pool_->data(old), pool_->block_bytes(), kind, stream,
                         tag_of(-1, Cause::kControl));
  } catch (...) {
    pool_->release(own);
    throw;
  }
  pool_->release(old, last_use_);
  ids_[static_cast<size_t>(index)] = own;
  addresses_.set(index, pool_->data(own));
  return true;
}

}  // namespace fasa
