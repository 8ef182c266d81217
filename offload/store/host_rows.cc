#include "offload/store/host_rows.h"

#include <algorithm>
#include <exception>

#include "offload/store/host_store.h"

namespace fasa {

HostRows::HostRows(HostStore& store)
    : SequenceRows(store.pool_, store.group_),
      store_(store),
      copies_(store.device_),
      hot_rows_(store.device_, store.group_.layout) {
  store.sequences_.push_back(this);
}

HostRows::~HostRows() { std::erase(store_.sequences_, this); }

RowMemory HostRows::memory() const {
  RowMemory memory = SequenceRows::memory();
  memory.copies = copies_.copy_bytes();
  memory.hot_rows = hot_rows_.bytes() + protected_rows_.bytes();
  memory.extra_hot_rows = hot_rows_.wide_bytes();
  memory.tables += copies_.table_bytes();
  memory.host_tables += copies_.host_table_bytes();
  return memory;
}

void HostRows::reserve_hot_rows() {
  const auto bytes = static_cast<size_t>(group_.layout.protected_bytes());
  if (!protected_rows_ && bytes > 0) {
    protected_rows_ = store_.device_.allocate(MemorySpace::kDevice, bytes, "sinks and recent rows");
  }
  hot_rows_.reserve(store_.hot_rows());
}

void HostRows::grow(int64_t tokens, int64_t first_page) {
  if (!copied()) reserve_hot_rows();
  SequenceRows::grow(tokens, first_page);
  if (copied()) copies_.grow(pages_of(tokens), group_.layout.row_block_bytes());
}

void HostRows::promise(int64_t tokens, int64_t pages) {
  SequenceRows::promise(tokens, pages);
  if (copied()) copies_.grow(pages_of(tokens), group_.layout.row_block_bytes());
}

SequenceRows::Mark HostRows::mark() const {
  Mark mark = SequenceRows::mark();
  mark.copies = copies_.pages();
  mark.copy_capacity = copies_.capacity();
  mark.hot = static_cast<bool>(protected_rows_);
  mark.wide = hot_rows_.wide();
  return mark;
}

bool HostRows::back_to(const Mark& mark, int64_t length) noexcept {
  SequenceRows::back_to(mark, length);
  if (hot_rows_.wide() && !mark.wide) hot_rows_.drop_wide();
  const bool lost = protected_rows_ && !mark.hot;
  if (!mark.hot) {
    protected_rows_ = Buffer();
    hot_rows_.give_back();
  }
  truncate_copies(mark.copies);
  filled_copies_ = std::min<int64_t>(filled_copies_, pages_of(length));
  copies_.shrink(mark.copy_capacity);
  if (access_ == mark.access) return lost;
  access_ = mark.access;
  overwrites_ = true;
  int64_t whole = 0;  // lent copies may have been given up
  const auto complete = [this](int64_t page) {
    return copies_.has(page) || (page < table_.pages() && table_.dropped(page));
  };
  while (whole < copies_.pages() && complete(whole)) ++whole;
  truncate_copies(whole);
  return true;
}

void HostRows::retake(const Mark& mark) noexcept {
  if (!copied() || copies_.pages() >= mark.copies) return;
  try {
    copies_.grow(mark.copies, group_.layout.row_block_bytes());
  } catch (const std::exception&) {
    // No memory.
  }
}

// Pages that a local sequence has no copies of are copied again.
void HostRows::truncate_copies(int64_t pages) noexcept {
  copies_.truncate(pages);
  filled_copies_ = std::min(filled_copies_, copies_.pages());
}

void HostRows::truncate(int64_t tokens) {
  SequenceRows::truncate(tokens);
  truncate_copies(table_.pages());
}

void HostRows::invalidate(int64_t length) {
  SequenceRows::invalidate(length);
  filled_copies_ = std::min<int64_t>(filled_copies_, pages_of(length));
  hot_rows_.forget();
}

void HostRows::drop(PageRange pages) {
  SequenceRows::drop(pages);
  copies_.drop(pages.first, pages.end);
}

bool HostRows::outgrows_copies(int64_t tokens) const {
  return copied() && pages_of(tokens) >
                         std::max(group_.layout.copied_pages(store_.hot_rows()), copies_.pages());
}

void HostRows::read_over_link(int64_t length) {
  access_ = RowAccess::kOverLink;
  const bool all_filled = filled_copies_ == pages_of(length);
  truncate_copies(!store_.lends_copies() ? 0 : all_filled ? copies_.pages() : filled_copies_);
  overwrites_ = true;
}

void HostRows::forget_hot_rows() {
  hot_rows_.forget();
  overwrites_ = true;
}

void HostRows::upload(StreamView control) {
  SequenceRows::upload(control);
  copies_.upload(control);
}

void HostRows::prepare(int64_t length, int tokens, StreamView control) {
  if (copied()) {
    fill_copies(length, control);
    filled_copies_ = pages_of(length + tokens);
  }
  hot_rows_.prepare(control);
}

// After a fork or a load, copies lack what only the host has.
void HostRows::fill_copies(int64_t length, StreamView control) {
  for (int64_t page = filled_copies_; page < pages_of(length); ++page) {
    const auto at = static_cast<size_t>(page);
    if (table_.blocks()[at] == nullptr) continue;  // dropped
    store_.device_.copy(copies_.blocks()[at], table_.blocks()[at],
                        static_cast<size_t>(group_.layout.row_block_bytes()),
                        CopyKind::kHostToDevice, control, tag_of(-1, Cause::kControl));
  }
}

void HostRows::describe(SequenceDesc* desc) const {
  SequenceRows::describe(desc);
  if (copied()) {
    desc->row_blocks = copies_.device_data();
    desc->home_blocks = table_.device_data();
  } else {
    desc->device_row_blocks = copies_.device_data();
    desc->device_row_pages = static_cast<int32_t>(copies_.pages());
  }
  desc->protected_rows = protected_rows_.data();
  hot_rows_.describe(desc);
}

void HostRows::describe_in_place(int64_t length, SequenceDesc* desc) const {
  describe(desc);
  desc->access = RowAccess::kLocal;  // reads rows over the link in place, as restore does
  desc->protected_rows = nullptr;
  if (filled_copies_ < pages_of(length)) desc->row_blocks = table_.device_data();
}

Buffer HostRows::take_oldest_copy() {
  overwrites_ = true;
  return copies_.take_oldest();
}

}  // namespace fasa
