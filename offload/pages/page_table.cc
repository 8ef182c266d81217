#include "offload/pages/page_table.h"

#include <algorithm>
#include <string>

namespace fasa {

PageTable::PageTable(BlockPool& pool) : pool_(&pool), addresses_(pool.device(), "page tables") {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  if (this == &other) return *this;
  truncate(0);
  reservation_.cancel();
  pool_ = other.pool_;
  ids_ = std::move(other.ids_);
  other.ids_.clear();
  addresses_ = std::move(other.addresses_);
  reservation_ = std::move(other.reservation_);
  return *this;
}

PageTable::~PageTable() { truncate(0); }

PageId PageTable::take_block() {
  return reservation_.blocks() > 0 ? pool_->allocate(reservation_) : pool_->allocate();
}

void PageTable::reserve(int64_t pages, int64_t first_written) {
  int64_t needed = std::max<int64_t>(pages - this->pages(), 0);
  for (int64_t i = first_written; i < std::min(pages, this->pages()); ++i) needed += shared(i);
  BlockReservation more = pool_->reserve(needed - reservation_.blocks());
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

void PageTable::grow(int64_t pages) {
  if (pages <= this->pages()) return;
  const int64_t before = this->pages();
  ids_.reserve(static_cast<size_t>(pages));
  const int64_t missing = pages - before - reservation_.blocks();
  BlockReservation more;
  if (missing > 1) more = pool_->reserve(missing);
  addresses_.reserve(pages);
  addresses_.prepare_overwrite(before);
  if (missing == 1) {
    // One page at a time is how decoding grows: let the pool grow with slack.
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
    pool_->release(ids_.back());
    ids_.pop_back();
  }
  addresses_.truncate(pages);
}

void PageTable::clear() noexcept {
  truncate(0);
  addresses_.clear();
}

PageTable PageTable::fork(int64_t pages) const {
  PageTable copy(*pool_);
  const int64_t count = std::min(pages, this->pages());
  copy.ids_.reserve(static_cast<size_t>(count));
  copy.addresses_.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    pool_->retain(page(i));
    copy.ids_.push_back(page(i));
    copy.addresses_.append(pool_->data(page(i)));
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
  pool_->release(old);
  ids_[static_cast<size_t>(index)] = own;
  addresses_.set(index, pool_->data(own));
  return true;
}

}  // namespace fasa
