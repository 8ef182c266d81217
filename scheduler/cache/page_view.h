// The state of one sequence of caller-owned pages that persists across steps: the address arrays
// that kernels read, and the hot rows. Pages are identified by id and generation, so a restarted
// page is never mistaken for its predecessor.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/pages/pointer_array.h"
#include "scheduler/cache/page_store.h"
#include "scheduler/cache/view_index.h"
#include "scheduler/step_settings.h"

namespace fasa {

class PageView {
 public:
  // Allocates the hot rows. `slices`: the pool for a private slice index if pages are small, else
  // null. Throws BudgetError.
  PageView(Device& device, const StepSettings& settings, int hot_rows, BlockPool* slices);

  int64_t pages() const { return static_cast<int64_t>(pages_.size()); }
  // True if its pages are a prefix of `table`.
  bool begins(std::span<const int32_t> table) const;
  // Length of the common prefix with `table`, in pages.
  int64_t common_pages(std::span<const int32_t> table) const;
  // Shares the sealed slices of the first `pages` pages of `other`. Throws BudgetError.
  void share_index(const PageView& other, const PageStore& store, int64_t pages);
  ViewIndex* index() { return index_ ? &*index_ : nullptr; }
  // Length of the prefix whose pages still have the same generation.
  int64_t valid_pages(const PageStore& store) const;
  // Drops all pages from `pages` on, and the hot rows. Streams must be idle.
  void cut(const PageStore& store, int64_t pages);
  // Extends the view to `table`, of which its pages are a prefix; `tokens` tokens are attended to.
  // Throws BudgetError; then nothing changes.
  void extend(const PageStore& store, std::span<const int32_t> table, int64_t tokens);

  // A private tail, for a length at which the last page has none; its contents are indeterminate.
  // Throws BudgetError.
  std::byte* own_tail();

  // Enqueues the changed addresses; empties invalid hot rows.
  void upload(StreamView control);
  void forget_hot_rows() { hot_rows_cold_ = true; }
  // The step sets the other fields.
  SequenceDesc describe() const;
  std::span<std::byte* const> row_blocks() const { return rows_.values(); }

  uint64_t hot_bytes() const { return hot_.bytes() + hot_table_.bytes(); }
  uint64_t tail_bytes() const { return own_tail_.bytes() + (index_ ? index_->tail_bytes() : 0); }
  uint64_t table_bytes() const {
    return rows_.device_bytes() + slices_.device_bytes() + (index_ ? index_->table_bytes() : 0);
  }
  uint64_t host_table_bytes() const {
    return rows_.host_bytes() + slices_.host_bytes() + (index_ ? index_->host_table_bytes() : 0);
  }

  uint64_t last_used = 0;  // in units of the caller's clock

 private:
  struct Page {
    int32_t id;
    uint32_t generation;
  };
  Device& device_;
  const StepSettings& settings_;
  const int slots_;  // hot rows per head
  std::vector<Page> pages_;
  PointerArray rows_;
  PointerArray slices_;
  Buffer hot_;
  Buffer hot_table_;
  Buffer own_tail_;
  std::optional<ViewIndex> index_;
  bool hot_rows_cold_ = true;
};

}  // namespace fasa
