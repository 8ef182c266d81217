#include "scheduler/cache/kv_sequence.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/base/error.h"
#include "scheduler/cache/rollback_window.h"

namespace fasa {
KvSequence::KvSequence(Device& device, const StepSettings& settings, KvPools& pools)
    : device_(device),
      settings_(settings),
      pools_(pools),
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
  // A short fork begins without slices.
  coded_ = other.coded_ && (settings_.access_of(tokens, pools_.hot_rows) == settings_.access() ||
                            !settings_.selects_all(tokens));
  slices_ = other.slices_.fork(coded_ ? tokens / kPageTokens : 0);
  window_rows_ = other.window_rows_.fork(pages_of(tokens));
  length_ = tokens;
  rollback_tokens_ = other.rollback_tokens_;
  first_page_ = tokens > 0 ? other.first_page_ : 0;
  later_rows_ = other.later_rows_;
  later_rows_.shorten(pages_of(tokens));
  if (history_) history_->share(*other.history_, tokens);
  work_ = other.work_;
  invalidate();
}

void KvSequence::takes_part(size_t slot, Fence step) {
  work_.steps[slot] = step;
  for (PageTable* table : {&rows_, &slices_, &window_rows_}) table->used_by(step);
}

void KvSequence::takes_part(Fence control) {
  work_.control = control;
  for (PageTable* table : {&rows_, &slices_, &window_rows_}) table->used_by(control);
}

void KvSequence::forget_hot_rows() {
  hot_rows_.forget();
  overwrites_ = true;
}

void KvSequence::truncate(int64_t tokens) {
  if (tokens >= length_) return;
  rows_.cancel_window();
  slices_.cancel_window();
  window_rows_.cancel_window();
  if (tokens == 0) first_page_ = 0;
  rows_.truncate(pages_of(tokens));
  window_rows_.truncate(pages_of(tokens));
  truncate_copies(rows_.pages());
  // Repacks the cut sealed page from its rows into a new block: other sequences may share the old
  // one.
  slices_.truncate(uses_slices() ? tokens / kPageTokens : 0);
  length_ = tokens;
  later_rows_.shorten(pages_of(tokens));
  invalidate();
}

void KvSequence::invalidate() {
  filled_copies_ = std::min<int64_t>(filled_copies_, pages_of(length_));
  if (history_) history_->truncate(length_);
  overwrites_ = true;
  stale_ = length_ > 0;
  hot_rows_.forget();
}

int64_t KvSequence::droppable() const {
  if (rollback_tokens_ < 0 || later_rows_.source != nullptr) return 0;
  if (!coded() && !settings_.has_window_rows()) return 0;  // slices will need the rows
  const int64_t kept = std::max(first_page_, first_pages_kept(settings_));
  return std::max<int64_t>(
      0, first_needed_page(settings_, std::max<int64_t>(0, length_ - rollback_tokens_)) - kept);
}

void KvSequence::drop_pages() {
  const int64_t pages = droppable();
  if (pages == 0) return;
  const int64_t first = std::max(first_page_, first_pages_kept(settings_));
  first_page_ = first + pages;
  overwrites_ = true;
  if (settings_.has_window_rows()) return window_rows_.drop(first, first_page_);
  rows_.drop(first, first_page_);
  if (uses_slices()) slices_.drop(first, first_page_);
  device_rows_.drop(first, first_page_);
}

void KvSequence::drop_window_rows(int64_t end) {
  window_rows_.drop(first_page_, end);
  first_page_ = std::max(first_page_, end);
}

bool KvSequence::can_truncate_to(int64_t tokens) const {
  return can_truncate_from(settings_, first_page_, tokens);
}

bool KvSequence::outgrows_copies(int64_t tokens) const {
  return is_copied() &&
         pages_of(tokens) > std::max(settings_.copied_pages(pools_.hot_rows), device_rows_.pages());
}

void KvSequence::read_over_link() {
  access_ = RowAccess::kOverLink;
  const bool all_filled = filled_copies_ == pages_of(length_);
  truncate_copies(!settings_.device_copies ? 0
                  : all_filled             ? device_rows_.pages()
                                           : filled_copies_);
  overwrites_ = true;
  stale_ = length_ > 0;
}

// Sequences that drop rows make slices from the start.
bool KvSequence::needs_slices(int64_t tokens) const {
  if (!uses_slices()) return false;
  return coded_ || !is_copied() || drops_coded_rows(settings_, rollback_tokens_) ||
         !settings_.selects_all(tokens);
}

void KvSequence::reserve_slices() {
  if (!uses_slices()) return;
  slices_.grow(length_ / kPageTokens);
  if (tail_) return;
  tail_ = device_.allocate(MemorySpace::kDevice, static_cast<size_t>(settings_.layout.tail_bytes()),
                           "the newest page's slices");
}

std::optional<SequenceDesc> KvSequence::code_slices() {
  if (coded_ || !tail_) return {};
  coded_ = true;
  if (length_ == 0) return {};
  SequenceDesc desc = describe();
  desc.mode = StepMode::kPrefill;
  desc.start = 0;
  desc.tokens = static_cast<int32_t>(length_);
  desc.access = RowAccess::kLocal;  // reads rows over the link in place, as restore does
  desc.protected_rows = nullptr;
  if (filled_copies_ < pages_of(length_)) desc.row_blocks = rows_.device_data();
  return desc;
}

// Pages that a local sequence has no copies of are copied again.
void KvSequence::truncate_copies(int64_t pages) noexcept {
  device_rows_.truncate(pages);
  filled_copies_ = std::min(filled_copies_, device_rows_.pages());
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
    if (is_copied()) device_rows_.grow(pages_of(tokens), settings_.layout.row_block_bytes());
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
    if (needs_slices(tokens)) {
      coded_ |= length_ == 0;
      slices_.grow(tokens / kPageTokens);
      ensure(tail_, layout.tail_bytes(), "slices of the newest page");
    }
    if (access_ == RowAccess::kOverLink) {
      ensure(protected_rows_, layout.protected_bytes(), "sinks and recent rows");
      hot_rows_.reserve(pools_.hot_rows);
    }
    if (settings_.has_window_rows()) window_rows_.grow(pages_of(window_tokens), first_window_page);
    rows_.grow(pages_of(tokens));
    if (is_copied()) device_rows_.grow(pages_of(tokens), layout.row_block_bytes());
  } catch (...) {
    give_back_to(before);
    throw;
  }
}

KvSequence::Reserved KvSequence::reserved() const {
  return {.row_pages = rows_.pages(),
          .slice_pages = slices_.pages(),
          .window_pages = window_rows_.pages(),
          .copies = device_rows_.pages(),
          .row_places = rows_.capacity(),
          .slice_places = slices_.capacity(),
          .window_places = window_rows_.capacity(),
          .copy_places = device_rows_.capacity(),
          .access = access_,
          .tail = static_cast<bool>(tail_),
          .coded = coded_,
          .hot = static_cast<bool>(protected_rows_),
          .wide = hot_rows_.wide()};
}

void KvSequence::give_back_to(const Reserved& before) noexcept {
  rows_.truncate(before.row_pages);
  window_rows_.truncate(before.window_pages);
  slices_.truncate(before.slice_pages);
  rows_.shrink(before.row_places);
  slices_.shrink(before.slice_places);
  window_rows_.shrink(before.window_places);
  if (hot_rows_.wide() && !before.wide) hot_rows_.drop_wide();
  if ((tail_ && !before.tail) || (protected_rows_ && !before.hot)) stale_ = length_ > 0;
  if (!before.tail) tail_ = Buffer();
  coded_ = before.coded;
  if (!before.hot) {
    protected_rows_ = Buffer();
    hot_rows_.give_back();
  }
  truncate_copies(before.copies);
  filled_copies_ = std::min<int64_t>(filled_copies_, pages_of(length_));
  device_rows_.shrink(before.copy_places);
  if (access_ == before.access) return;
  access_ = before.access;
  overwrites_ = true;
  stale_ = length_ > 0;
  int64_t whole = 0;  // lent copies may have been given up
  const auto complete = [this](int64_t page) {
    return device_rows_.has(page) || (page < rows_.pages() && rows_.dropped(page));
  };
  while (whole < device_rows_.pages() && complete(whole)) ++whole;
  truncate_copies(whole);
}

void KvSequence::take_back_copies(const Reserved& before) noexcept {
  if (!is_copied() || device_rows_.pages() >= before.copies) return;
  try {
    device_rows_.grow(before.copies, settings_.layout.row_block_bytes());
  } catch (const std::exception&) {
    // No memory.
  }
}

uint64_t KvSequence::device_bytes() const {
  return tail_.bytes() + hot_bytes() + copy_bytes() +
         static_cast<uint64_t>(slices_.pages() * settings_.layout.slice_block_bytes());
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
  overwrites_ = false;
  rows_.upload(control);
  slices_.upload(control);
  window_rows_.upload(control);
  device_rows_.upload(control);
}

void KvSequence::fill_copies(int tokens, StreamView control) {
  if (!is_copied()) return;
  for (int64_t page = filled_copies_; page < pages_of(length_); ++page) {
    const auto at = static_cast<size_t>(page);
    if (rows_.blocks()[at] == nullptr) continue;  // dropped
    device_.copy(device_rows_.blocks()[at], rows_.blocks()[at],
                 static_cast<size_t>(settings_.layout.row_block_bytes()), CopyKind::kHostToDevice,
                 control, tag_of(-1, Cause::kControl));
  }
  filled_copies_ = pages_of(length_ + tokens);
}

SequenceDesc KvSequence::describe() const {
  SequenceDesc desc = {.mode = StepMode::kDecode,
                       .first_token = 0,
                       .tokens = 0,
                       .start = static_cast<int32_t>(length_),
                       .slice_blocks = slices_.device_data(),
                       .row_blocks = rows_.device_data(),
                       .access = access_,
                       .tail = tail_.data(),
                       .protected_rows = protected_rows_.data(),
                       .hot = nullptr,
                       .hot_table = nullptr,
                       .hot_rows = 0,
                       .write_back_buffer = nullptr};
  if (is_copied()) {
    desc.row_blocks = device_rows_.device_data();
    desc.home_blocks = rows_.device_data();
  } else {
    desc.device_row_blocks = device_rows_.device_data();
    desc.device_row_pages = static_cast<int32_t>(device_rows_.pages());
  }
  hot_rows_.describe(&desc);
  return desc;
}

SequenceDesc KvSequence::describe_window_rows() const {
  SequenceDesc desc;
  desc.row_blocks = window_rows_.device_data();
  return desc;
}

}  // namespace fasa
