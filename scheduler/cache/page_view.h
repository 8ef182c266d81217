// What is kept of one sequence of a caller's pages from step to step: the arrays of addresses that
// kernels read, and its hot rows. Pages are known by id and generation, so that a page that was
// started anew is never taken for the one that it was.
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
  // Takes the memory of the hot rows. `slices`: for an index of its own, where pages are small; or
  // null. Throws BudgetError.
  PageView(Device& device, const StepSettings& settings, BlockPool* slices);

  int64_t pages() const { return static_cast<int64_t>(pages_.size()); }
  // Whether its pages are the first ones of `table`.
  bool begins(std::span<const int32_t> table) const;
  // Pages that it has in common with `table`, counted from the first.
  int64_t common_pages(std::span<const int32_t> table) const;
  // Takes over what of the index of `other` its first `pages` pages sealed. Throws BudgetError.
  void share_index(const PageView& other, const PageStore& store, int64_t pages);
  ViewIndex* index() { return index_ ? &*index_ : nullptr; }
  // The pages that still are what they were, counted from the first.
  int64_t valid_pages(const PageStore& store) const;
  // Forgets the pages from there on, and its hot rows. Streams must be idle.
  void cut(const PageStore& store, int64_t pages);
  // `table` begins with its pages, `tokens` of which are attended to. Throws BudgetError; nothing
  // changes then.
  void extend(const PageStore& store, std::span<const int32_t> table, int64_t tokens);

  // A tail of its own, for a length whose tail its last page does not have: contents indeterminate.
  // Throws BudgetError.
  std::byte* own_tail();

  // Enqueues what changed; empties hot rows that are not to be trusted.
  void upload(StreamView control);
  void forget_hot_rows() { hot_rows_cold_ = true; }
  // The step fills in the rest.
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

  uint64_t last_used = 0;  // the caller's clock

 private:
  struct Page {
    int32_t id;
    uint32_t generation;
  };
  Device& device_;
  const StepSettings& settings_;
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
