// The state of one sequence of caller-owned pages that persists across steps: the address arrays
// that kernels read, and the hot rows. Pages are identified by id and generation, so a restarted
// page is never mistaken for its predecessor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/pages/pointer_array.h"
#include "offload/store/hot_rows.h"
#include "scheduler/cache/page_store.h"
#include "scheduler/step_settings.h"

namespace fasa {

class PageView {
 public:
  // Allocates the hot rows. Throws BudgetError.
  PageView(Device& device, const StepSettings& settings, int hot_rows);

  int64_t pages() const { return static_cast<int64_t>(pages_.size()); }
  // True if its pages are a prefix of `table`.
  bool begins(std::span<const int32_t> table) const;
  // Length of the prefix whose pages still have the same generation.
  int64_t valid_pages(const PageStore& store) const;
  // Drops all pages from `pages` on, and the hot rows. Streams must be idle.
  void cut(const PageStore& store, int64_t pages);
  // Extends the view to `table`, of which its pages are a prefix. Throws BudgetError; then nothing
  // changes.
  void extend(const PageStore& store, std::span<const int32_t> table);

  // A private tail, for a length at which the last page has none; its contents are indeterminate.
  // Throws BudgetError.
  std::byte* own_tail();

  // Enqueues the changed addresses; empties invalid hot rows.
  void upload(StreamView control);
  void forget_hot_rows() { hot_rows_.forget(); }
  // The step sets the other fields.
  SequenceDesc describe() const;
  std::span<std::byte* const> row_blocks() const { return rows_.values(); }

  uint64_t hot_bytes() const { return hot_rows_.bytes(); }
  uint64_t tail_bytes() const { return own_tail_.bytes(); }
  uint64_t table_bytes() const { return rows_.device_bytes() + slices_.device_bytes(); }
  uint64_t host_table_bytes() const { return rows_.host_bytes() + slices_.host_bytes(); }

  uint64_t last_used = 0;  // in units of the caller's clock

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
  HotRows hot_rows_;
  Buffer own_tail_;
};

}  // namespace fasa
