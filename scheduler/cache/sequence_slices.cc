#include "scheduler/cache/sequence_slices.h"

#include <algorithm>

namespace fasa {

void SequenceSlices::grow(int64_t tokens) {
  table_.grow(tokens / kPageTokens);
  if (tail_ || layout_.tail_bytes() == 0) return;
  tail_ = table_.device().allocate(MemorySpace::kDevice, static_cast<size_t>(layout_.tail_bytes()),
                                   "slices of the newest page");
}

void SequenceSlices::promise(int64_t tokens, int64_t pages) {
  const int64_t sealed = tokens / kPageTokens;
  table_.reserve_window(sealed, std::min(pages, sealed));
}

SequenceSlices::Mark SequenceSlices::mark() const {
  return {.table = table_.mark(), .tail = static_cast<bool>(tail_), .coded = coded_};
}

bool SequenceSlices::back_to(const Mark& mark) noexcept {
  table_.back_to(mark.table);
  coded_ = mark.coded;
  if (mark.tail || !tail_) return false;
  tail_ = Buffer();
  return true;
}

void SequenceSlices::share(const SequenceSlices& parent, int64_t tokens, bool coded) {
  coded_ = coded;
  table_ = parent.table_.fork(coded_ ? tokens / kPageTokens : 0);
}

// A cut sealed page is packed again from its rows into a new block: other sequences may share the
// old one.
void SequenceSlices::truncate(int64_t tokens) {
  table_.cancel_window();
  table_.truncate(used() ? tokens / kPageTokens : 0);
}

void SequenceSlices::drop(int64_t first, int64_t end) {
  if (used()) table_.drop(first, end);
}

void SequenceSlices::describe(SequenceDesc* desc) const {
  desc->slice_blocks = table_.device_data();
  desc->tail = tail_.data();
}

}  // namespace fasa
