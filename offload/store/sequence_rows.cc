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
  retained_ = parent.retained_;
  retained_.cut(tokens);
}

void SequenceRows::truncate(int64_t tokens) {
  table_.cancel_window();
  retained_.cut(tokens);
  table_.truncate(pages_of(tokens));
}

void SequenceRows::invalidate(int64_t /*length*/) { overwrites_ = true; }

int64_t SequenceRows::droppable(int64_t oldest) const {
  int64_t pages = 0;
  for (const PageRange range :
       retained_.droppable_before(group_.retention.first_needed_page(oldest))) {
    pages += range.pages();
  }
  return pages;
}

void SequenceRows::drop_until(int64_t end) {
  for (const PageRange range : retained_.droppable_before(end)) {
    if (range.pages() > 0) drop(range);
  }
  retained_.dropped_until(end);
  if (retained_.behind().pages() > 0 && table_.dropped(retained_.behind().first))
    retained_.lose_behind();
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
