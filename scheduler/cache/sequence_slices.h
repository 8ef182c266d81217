// A sequence's slices on the device: a block for each sealed page, and those of the newest page
// (the tail). A short sequence has none until a set leaves a token out; then they are made from its
// rows.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/params.h"
#include "offload/pages/page_table.h"

namespace fasa {

class SequenceSlices {
 public:
  SequenceSlices(BlockPool& pool, const CacheLayout& layout) : layout_(layout), table_(pool) {}

  // True if the model's slices are used at all.
  bool used() const { return layout_.slice.dims > 0; }
  // True if all committed tokens have slices, and new tokens get them with their rows.
  bool coded() const { return coded_ || !used(); }
  // Memory for them is there, but they are not made yet.
  bool must_be_coded() const { return !coded_ && tail_; }
  void set_coded() { coded_ = true; }

  std::span<std::byte* const> blocks() const { return table_.blocks(); }
  void used_by(Fence work) noexcept { table_.used_by(work); }

  // Memory for `tokens` tokens. Throws BudgetError; then back_to() undoes what was done.
  void grow(int64_t tokens);
  // The same while at most `pages` pages are held at a time.
  void promise(int64_t tokens, int64_t pages);
  struct Mark {
    PageTable::Mark table;
    bool tail = false;
    bool coded = false;
  };
  Mark mark() const;
  // Returns true if the next step must restore the tail.
  bool back_to(const Mark& mark) noexcept;

  // Shares those of the first `tokens` tokens of `parent`, if `coded`.
  void share(const SequenceSlices& parent, int64_t tokens, bool coded);
  void truncate(int64_t tokens);
  void drop(int64_t first, int64_t end);

  void upload(StreamView control) { table_.upload(control); }
  void describe(SequenceDesc* desc) const;

  uint64_t tail_bytes() const { return tail_.bytes(); }
  uint64_t bytes() const {
    return tail_.bytes() + static_cast<uint64_t>(table_.pages() * layout_.slice_block_bytes());
  }
  uint64_t table_bytes() const { return table_.device_bytes(); }
  uint64_t host_table_bytes() const { return table_.host_bytes(); }

 private:
  const CacheLayout& layout_;
  PageTable table_;
  Buffer tail_;
  bool coded_ = false;
};

}  // namespace fasa
