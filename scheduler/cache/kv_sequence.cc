#include "scheduler/cache/kv_sequence.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "scheduler/cache/rollback_window.h"

namespace fasa {
KvSequence::KvSequence(Device& device, const StepSettings& settings, KvPools& pools)
    : device_(device),
      settings_(settings),
      rows_(pools.rows),
      slices_(pools.slices),
      window_rows_(pools.window_rows),
      device_rows_(device),
      hot_rows_(device, settings.layout),
      rollback_tokens_(settings.rollback_tokens) {
  if (settings.selection_evicts) history_.emplace(settings);
}

void KvSequence::share(const KvSequence& other, int64_t tokens) {
  rows_ = other.rows_.fork(pages_of(tokens));
  slices_ = other.slices_.fork(uses_slices() ? tokens / kPageTokens : 0);
  window_rows_ = other.window_rows_.fork(pages_of(tokens));
  length_ = tokens;
  rollback_tokens_ = other.rollback_tokens_;
  first_page_ = tokens > 0 ? other.first_page_ : 0;
  later_rows_ = other.later_rows_;
  later_rows_.shorten(pages_of(tokens));
  if (history_) history_->share(*other.history_, tokens);
  invalidate();
}

void KvSequence::truncate(int64_t tokens) {
  if (tokens >= length_) return;
  rows_.cancel_window();
  slices_.cancel_window();
  window_rows_.cancel_window();
  if (tokens == 0) first_page_ = 0;
  rows_.truncate(pages_of(tokens));
  window_rows_.truncate(pages_of(tokens));
  device_rows_.truncate(rows_.pages());
  // Repacks the cut sealed page from its rows into a new block: other sequences may share the old
  // one.
  slices_.truncate(uses_slices() ? tokens / kPageTokens : 0);
  length_ = tokens;
  later_rows_.shorten(pages_of(tokens));
  invalidate();
}

void KvSequence::invalidate() {
  if (history_) history_->truncate(length_);
  stale_ = length_ > 0;
  if (stale_ && !drops_rows()) {
    hot_rows_.invalidate();
  } else {
    hot_rows_.forget();  // also avoids refetching dropped rows
  }
}

int64_t KvSequence::droppable() const {
  if (rollback_tokens_ < 0 || later_rows_.source != nullptr) return 0;
  const int64_t kept = std::max(first_page_, first_pages_kept(settings_));
  return std::max<int64_t>(
      0, first_needed_page(settings_, std::max<int64_t>(0, length_ - rollback_tokens_)) - kept);
}

void KvSequence::drop_pages() {
  const int64_t pages = droppable();
  if (pages == 0) return;
  const int64_t first = std::max(first_page_, first_pages_kept(settings_));
  first_page_ = first + pages;
  if (settings_.has_window_rows()) return window_rows_.drop(first, first_page_);
  rows_.drop(first, first_page_);
  if (uses_slices()) slices_.drop(first, first_page_);
  device_rows_.drop(first_page_);
  if (stale_) hot_rows_.forget();
}

void KvSequence::drop_window_rows(int64_t end) {
  window_rows_.drop(first_page_, end);
  first_page_ = std::max(first_page_, end);
}

bool KvSequence::can_truncate_to(int64_t tokens) const {
  return can_truncate_from(settings_, first_page_, tokens);
}

void KvSequence::reserve(int64_t tokens) { grow(tokens, tokens); }

void KvSequence::reserve_from(int64_t first_window_page, int64_t tokens) {
  grow(tokens, tokens, first_window_page);
}

void KvSequence::reserve(int64_t tokens, int step_tokens) {
  const int64_t pages = max_pages(settings_, tokens, step_tokens, rollback_tokens_);
  if (pages == pages_of(tokens)) return reserve(tokens);
  const Reserved before = reserved();
  grow(settings_.has_window_rows() ? tokens : length_, length_);
  try {
    promise_window_rows(tokens, pages);
  } catch (...) {
    give_back_to(before);
    throw;
  }
}

// Throws BudgetError; then nothing changes.
void KvSequence::promise_window_rows(int64_t tokens, int64_t pages) {
  if (settings_.has_window_rows()) return window_rows_.reserve_window(pages_of(tokens), pages);
  const Reserved before = reserved();
  rows_.reserve_window(pages_of(tokens), pages);
  if (!uses_slices()) return;
  try {
    slices_.reserve_window(tokens / kPageTokens, std::min(pages, tokens / kPageTokens));
  } catch (...) {
    rows_.cancel_window();
    rows_.shrink(before.row_places);
    throw;
  }
}

void KvSequence::grow(int64_t tokens, int64_t window_tokens, int64_t first_window_page) {
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
      ensure(protected_rows_, layout.protected_bytes(), "sinks and recent rows");
      hot_rows_.reserve();
    }
    if (settings_.has_window_rows()) window_rows_.grow(pages_of(window_tokens), first_window_page);
    rows_.grow(pages_of(tokens));
  } catch (...) {
    give_back_to(before);
    throw;
  }
}

void KvSequence::give_back_to(const Reserved& before) {
  rows_.truncate(before.row_pages);
  window_rows_.truncate(before.window_pages);
  device_rows_.truncate(rows_.pages());
  slices_.truncate(before.slice_pages);
  rows_.shrink(before.row_places);
  slices_.shrink(before.slice_places);
  window_rows_.shrink(before.window_places);
  device_rows_.shrink(before.copy_places);
  if (hot_rows_.wide() && !before.wide) hot_rows_.drop_wide();
  if (before.whole) return;
  tail_ = Buffer();
  protected_rows_ = Buffer();
  hot_rows_.give_back();
  stale_ = length_ > 0;
}

bool KvSequence::needs_private_page() const {
  if (length_ % kPageTokens == 0) return false;
  const int64_t last = length_ / kPageTokens;
  return rows_.shared(last) || (settings_.has_window_rows() && window_rows_.shared(last));
}

void KvSequence::make_last_page_private(StreamView control) {
  rows_.make_writable(length_ / kPageTokens, control);
  if (settings_.has_window_rows()) window_rows_.make_writable(length_ / kPageTokens, control);
}

void KvSequence::upload_tables(StreamView control) {
  rows_.upload(control);
  slices_.upload(control);
  window_rows_.upload(control);
  device_rows_.upload(control);
}

SequenceDesc KvSequence::describe() const {
  SequenceDesc desc = {.mode = StepMode::kDecode,
                       .first_token = 0,
                       .tokens = 0,
                       .start = static_cast<int32_t>(length_),
                       .slice_blocks = slices_.device_data(),
                       .row_blocks = rows_.device_data(),
                       .device_row_blocks = device_rows_.device_data(),
                       .device_row_pages = static_cast<int32_t>(device_rows_.pages()),
                       .tail = tail_.data(),
                       .protected_rows = protected_rows_.data(),
                       .hot = nullptr,
                       .hot_table = nullptr,
                       .hot_rows = 0,
                       .write_back_buffer = nullptr};
  hot_rows_.describe(&desc);
  return desc;
}

SequenceDesc KvSequence::describe_window_rows() const {
  SequenceDesc desc;
  desc.row_blocks = window_rows_.device_data();
  return desc;
}

}  // namespace fasa
