#include "offload/store/sequence_rows.h"

namespace fasa {

RowMemory SequenceRows::memory() const {
  return {.tables = table_.device_bytes(), .host_tables = table_.host_bytes()};
}

void SequenceRows::grow(int64_t tokens, int64_t first_page) {
  table_.grow(pages_of(tokens), first_page);
}

void SequenceRows::promise(int64_t tokens, int64_t pages) {
  table_.reserve_window(pages_of(tokens), pages);
}

SequenceRows::Mark SequenceRows::mark() const {
  return {.table = table_.mark(), .access = access()};
}

bool SequenceRows::back_to(const Mark& mark, int64_t /*length*/) noexcept {
  table_.back_to(mark.table);
  return false;
}

void SequenceRows::share(const SequenceRows& parent, int64_t tokens) {
  table_ = parent.table_.fork(pages_of(tokens));
  first_page_ = parent.first_page_;
  held_ = parent.held_;
  behind_ = parent.behind_;
  cut_held(tokens);
}

void SequenceRows::truncate(int64_t tokens) {
  table_.cancel_window();
  cut_held(tokens);
  table_.truncate(pages_of(tokens));
}

bool SequenceRows::holds(int64_t tokens) const {
  if (held_ == 0 || tokens > held_ || behind_.pages() == 0) return false;
  const int64_t first = group_.retention.first_needed_page(held_);
  return behind_.first == first && group_.retention.first_needed_page(tokens) >= first;
}

// After a cut into the pages of a held length nothing is freed behind them.
void SequenceRows::cut_held(int64_t tokens) {
  const bool into = !group_.retention.can_truncate(first_page_, tokens) && holds(tokens);
  if (tokens == 0) first_page_ = 0;
  if (into) first_page_ = behind_.first;
  if (tokens == 0 || into) behind_ = {};
  if (tokens < held_) held_ = 0;
}

void SequenceRows::hold(int64_t tokens) {
  const Retention& retention = group_.retention;
  if (retention.seen == 0 || held_ == tokens) return;
  held_ = retention.can_truncate(first_page_, tokens) ? tokens : 0;
}

void SequenceRows::invalidate(int64_t /*length*/) { overwrites_ = true; }

SequenceRows::PageRanges SequenceRows::droppable_before(int64_t end) const {
  const int64_t first = std::max(first_page_, group_.retention.first_pages);
  const PageRange held = held_ == 0 ? PageRange{} : group_.retention.needed_by(held_);
  // Pages behind that an earlier length held.
  const bool left = behind_.pages() > 0 && (held_ == 0 || behind_.first != held.first);
  return {left ? PageRange{std::max(behind_.first, group_.retention.first_pages), behind_.end}
               : PageRange{},
          PageRange{first, held_ == 0 ? end : std::min(end, held.first)},
          held_ == 0 ? PageRange{} : PageRange{std::max(first, held.end), end}};
}

int64_t SequenceRows::droppable(int64_t oldest) const {
  int64_t pages = 0;
  for (const PageRange range : droppable_before(group_.retention.first_needed_page(oldest))) {
    pages += range.pages();
  }
  return pages;
}

void SequenceRows::drop_until(int64_t end) {
  for (const PageRange range : droppable_before(end)) {
    if (range.pages() > 0) drop(range);
  }
  first_page_ = std::max(first_page_, end);
  const PageRange held = held_ == 0 ? PageRange{} : group_.retention.needed_by(held_);
  behind_ = {held.first, std::min(held.end, first_page_)};
  if (behind_.pages() == 0) {
    behind_ = {};
  } else if (table_.dropped(behind_.first)) {  // they were never loaded
    behind_ = {};
    held_ = 0;
  }
}

void SequenceRows::drop(PageRange pages) {
  table_.drop(pages.first, pages.end);
  overwrites_ = true;
}

bool SequenceRows::needs_private_page(int64_t length) const {
  return length % kPageTokens != 0 && table_.shared(length / kPageTokens);
}

bool SequenceRows::reserve_private_page(int64_t length) {
  if (!needs_private_page(length)) return false;
  table_.reserve(table_.pages(), length / kPageTokens);
  return true;
}

void SequenceRows::make_private(int64_t length, StreamView control) {
  if (needs_private_page(length)) table_.make_writable(length / kPageTokens, control);
}

void SequenceRows::upload(StreamView control) {
  overwrites_ = false;
  table_.upload(control);
}

void SequenceRows::describe(SequenceDesc* desc) const {
  desc->row_blocks = table_.device_data();
  desc->access = access();
}

void SequenceRows::describe_in_place(int64_t /*length*/, SequenceDesc* desc) const {
  describe(desc);
}

}  // namespace fasa
