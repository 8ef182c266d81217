// The rows of one sequence in one layer group, as one store keeps them. Used between steps, by one
// thread; kernels read what describe() fills in. RowStore::open() makes it, and the store outlives
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/params.h"
#include "offload/pages/page_table.h"
#include "offload/store/hot_rows.h"
#include "offload/store/pending_pages.h"
#include "offload/store/retained_pages.h"
#include "offload/store/retention.h"

namespace fasa {

// Bytes beside the pages.
struct RowMemory {
  uint64_t copies = 0;          // device copies of pages
  uint64_t hot_rows = 0;        // hot rows and protected rows
  uint64_t extra_hot_rows = 0;  // lent ones
  uint64_t tables = 0;          // device
  uint64_t host_tables = 0;
};

class SequenceRows {
 public:
  virtual ~SequenceRows() = default;
  SequenceRows(const SequenceRows&) = delete;  // stores refer to it
  SequenceRows& operator=(const SequenceRows&) = delete;

  const LayerGroup& group() const { return group_; }
  int64_t pages() const { return table_.pages(); }
  // By page, in the store's memory; null: freed.
  std::span<std::byte* const> blocks() const { return table_.blocks(); }
  std::byte* const* device_blocks() const { return table_.device_data(); }
  virtual RowAccess access() const { return RowAccess::kLocal; }
  // True if kernels use device copies of all pages in place of the blocks.
  virtual bool copied() const { return false; }
  virtual RowView view() const { return {.blocks = blocks()}; }
  virtual HotRows* hot_rows() { return nullptr; }
  virtual RowMemory memory() const;

  // Work that uses the rows; pages are released under the latest.
  void used_by(Fence work) noexcept { table_.used_by(work); }
  Fence last_use() const { return table_.last_use(); }
  // True if the next upload overwrites what earlier work may read.
  bool overwrites() const { return overwrites_; }

  // Memory for `tokens` tokens in all; new pages before `first_page` get none. Throws BudgetError;
  // then back_to() undoes what was done.
  virtual void grow(int64_t tokens, int64_t first_page = 0);
  // The same while at most `pages` pages are held at a time.
  virtual void promise(int64_t tokens, int64_t pages);
  // Snapshot of the memory, and the way back for a call that fails. No work may be enqueued in
  // between; address arrays may stay larger.
  struct Mark {
    PageTable::Mark table;
    int64_t copies = 0;
    int64_t copy_capacity = 0;
    RowAccess access = RowAccess::kLocal;
    bool hot = false;   // protected rows, hot rows
    bool wide = false;  // extra hot rows
  };
  virtual Mark mark() const;
  // Returns true if the next step must restore what the device has beside the pages. `length`:
  // committed tokens.
  virtual bool back_to(const Mark& mark, int64_t length) noexcept;
  // Call it once all memory that the failed call allocated is free: allocates copies that became
  // hot rows in it. If another user of the device took their memory, the next step allocates them.
  virtual void retake(const Mark&) noexcept {}

  // Contents of the first `pages` pages come from `pending`, which is used as long as some are
  // missing. Only for rows of the tier kDisk; others have all contents.
  virtual void attach(std::shared_ptr<PendingPages> /*pending*/, int64_t /*pages*/) {}
  // Loads the missing contents of pages [first, end); about `max_bytes` of those that are missing,
  // and returns true once none is missing. Both throw the errors of PendingPages.
  virtual void load(int64_t /*first*/, int64_t /*end*/) {}
  virtual bool load_more(size_t /*max_bytes*/) { return true; }

  // Shares the first `tokens` tokens of `parent`, which the same store opened. Only for new rows.
  virtual void share(const SequenceRows& parent, int64_t tokens);
  virtual void truncate(int64_t tokens);
  // The committed length is `length`; what the device has beyond it, or beside pages, is void.
  virtual void invalidate(int64_t length);
  // Which pages it keeps; hold() says which further ones.
  const RetainedPages& retained() const { return retained_; }
  void hold(int64_t tokens) { retained_.hold(tokens); }
  // Pages that a sequence which can be truncated to `oldest` tokens no longer needs.
  virtual int64_t droppable(int64_t oldest) const;
  // Frees those before `end` that it does not keep. The last use of copies must have passed.
  void drop_until(int64_t end);

  // True if the copies would take more memory than hot rows once there are `tokens` tokens. Then
  // read_over_link() replaces them by hot rows, once and for good; the last use of copies must have
  // passed.
  virtual bool outgrows_copies(int64_t /*tokens*/) const { return false; }
  virtual void read_over_link(int64_t /*length*/) {}

  // Step numbers restart: hot rows start empty.
  virtual void forget_hot_rows() {}

  // Memory for the copy on write of the page that token `length` will be written to. False: it is
  // not shared. Throws BudgetError; then nothing changes.
  bool reserve_private_page(int64_t length);
  // Enqueue on `control` the work that precedes a step.
  void make_private(int64_t length, StreamView control);
  virtual void upload(StreamView control);
  // For a step of `tokens` tokens after `length`: fills copies and tables that lack their contents.
  virtual void prepare(int64_t /*length*/, int /*tokens*/, StreamView /*control*/) {}
  // Sets row fields for a step, or for work that reads the first `length` tokens in place. Valid
  // after the upload.
  virtual void describe(SequenceDesc* desc) const;
  virtual void describe_in_place(int64_t length, SequenceDesc* desc) const;

 protected:
  SequenceRows(BlockPool& pool, const LayerGroup& group)
      : group_(group), table_(pool), retained_(group.retention) {}

  virtual void drop(PageRange pages);

  const LayerGroup& group_;
  PageTable table_;
  bool overwrites_ = false;

 private:
  bool needs_private_page(int64_t length) const;

  RetainedPages retained_;
};

}  // namespace fasa
