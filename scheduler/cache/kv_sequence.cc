#include "scheduler/cache/kv_sequence.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {
KvSequence::KvSequence(Device& device, const StepSettings& settings, KvPools& pools)
    : device_(device),
      settings_(settings),
      rows_(pools.rows),
      slices_(pools.slices),
      device_rows_(device) {
  if (settings.selection_evicts) history_.emplace(settings);
}

void KvSequence::share(const KvSequence& other, int64_t tokens) {
  rows_ = other.rows_.fork(pages_of(tokens));
  slices_ = other.slices_.fork(uses_slices() ? tokens / kPageTokens : 0);
  length_ = tokens;
  source_ = other.source_;
  sourced_pages_ = other.sourced_pages_;
  keep_source(tokens);
  if (history_) history_->share(*other.history_, tokens);
  invalidate();
}

void KvSequence::truncate(int64_t tokens) {
  if (tokens >= length_) return;
  rows_.truncate(pages_of(tokens));
  device_rows_.truncate(rows_.pages());
  // A sealed page that is cut is packed again from its rows, into a block of its own: others may
  // share the old one.
  slices_.truncate(uses_slices() ? tokens / kPageTokens : 0);
  length_ = tokens;
  keep_source(tokens);
  invalidate();
}

void KvSequence::set_row_source(std::shared_ptr<RowSource> source, int64_t pages) {
  source_ = std::move(source);
  sourced_pages_ = source_ ? pages : 0;
}

// The page of the last of `tokens` tokens has all its rows: whoever shortens sees to it.
void KvSequence::keep_source(int64_t tokens) {
  sourced_pages_ = std::min(sourced_pages_, std::max<int64_t>(0, pages_of(tokens) - 1));
  if (sourced_pages_ == 0) source_.reset();
}

void KvSequence::invalidate() {
  if (history_) history_->truncate(length_);
  stale_ = length_ > 0;
  if (hot_rows_ == HotRowsState::kEmpty) return;
  hot_rows_ = stale_ ? HotRowsState::kSuspect : HotRowsState::kEmpty;
}

void KvSequence::reserve(int64_t tokens) {
  const CacheLayout& layout = settings_.layout;
  const Reserved before = reserved();
  const auto ensure = [&](Buffer& buffer, int64_t bytes, std::string_view purpose) {
    if (buffer || bytes == 0) return;
    buffer = device_.allocate(MemorySpace::kDevice, static_cast<size_t>(bytes), purpose);
  };
  try {
    if (uses_slices()) {
      slices_.grow(tokens / kPageTokens);
      ensure(tail_, layout.tail_bytes(), "the newest page's slices");
    }
    if (!settings_.rows_on_device) {
      ensure(residents_, layout.resident_bytes(), "sinks and recent rows");
      ensure(hot_, layout.hot_bytes(), "hot rows");
      ensure(hot_table_, layout.hot_table_bytes(), "the table of hot rows");
    }
    rows_.grow(pages_of(tokens));
  } catch (...) {
    give_back_to(before);
    throw;
  }
}

void KvSequence::give_back_to(const Reserved& before) {
  rows_.truncate(before.row_pages);
  device_rows_.truncate(rows_.pages());
  slices_.truncate(before.slice_pages);
  rows_.shrink(before.row_places);
  slices_.shrink(before.slice_places);
  device_rows_.shrink(before.copy_places);
  if (wide_slots_ > 0 && !before.wide) drop_wide_rows();
  if (before.whole) return;
  for (Buffer* buffer : {&tail_, &residents_, &hot_, &hot_table_}) *buffer = Buffer();
  forget_hot_rows();
  stale_ = length_ > 0;
}

bool KvSequence::needs_private_page() const {
  return length_ % kPageTokens != 0 && rows_.shared(length_ / kPageTokens);
}

void KvSequence::make_last_page_private(StreamView control) {
  rows_.make_writable(length_ / kPageTokens, control);
}

void KvSequence::upload_tables(StreamView control) {
  rows_.upload(control);
  slices_.upload(control);
  device_rows_.upload(control);
}

void KvSequence::empty_hot_rows(StreamView control) {
  if (hot_rows_ == HotRowsState::kSuspect) {
    hot_rows_ = HotRowsState::kRemembered;  // restore empties them
  } else if (hot_rows_ == HotRowsState::kEmpty && hot_table_) {
    const Buffer& table = hot_table();
    device_.fill(table.data(), 0xff, table.bytes(), control, tag_of(-1, Cause::kControl));
    hot_rows_ = HotRowsState::kValid;
  }
}

SequenceDesc KvSequence::describe() const {
  return {.mode = StepMode::kDecode,
          .first_token = 0,
          .tokens = 0,
          .start = static_cast<int32_t>(length_),
          .slice_blocks = slices_.device_data(),
          .row_blocks = rows_.device_data(),
          .device_row_blocks = device_rows_.device_data(),
          .device_row_pages = static_cast<int32_t>(device_rows_.pages()),
          .tail = tail_.data(),
          .residents = residents_.data(),
          .hot = wide_slots_ > 0 ? wide_hot_.data() : hot_.data(),
          .hot_table = hot_table().as<int32_t>(),
          .hot_rows = wide_slots_,
          .stage = nullptr};
}

bool KvSequence::widen_hot_rows(int slots) {
  const CacheLayout& layout = settings_.layout;
  try {
    Buffer hot = device_.allocate(MemorySpace::kDevice,
                                  static_cast<size_t>(layout.hot_bytes(slots)), "hot rows");
    wide_table_ =
        device_.allocate(MemorySpace::kDevice, static_cast<size_t>(layout.hot_table_bytes(slots)),
                         "the table of hot rows");
    wide_hot_ = std::move(hot);
  } catch (const BudgetError&) {
    return false;
  }
  wide_slots_ = slots;
  forget_hot_rows();
  return true;
}

void KvSequence::narrow_hot_rows() {
  drop_wide_rows();
  narrowed_ = true;
}

void KvSequence::drop_wide_rows() {
  wide_hot_ = Buffer();
  wide_table_ = Buffer();
  wide_slots_ = 0;
  forget_hot_rows();
}

uint64_t KvSequence::hot_bytes() const {
  return hot_.bytes() + hot_table_.bytes() + residents_.bytes() + wide_bytes();
}

}  // namespace fasa
