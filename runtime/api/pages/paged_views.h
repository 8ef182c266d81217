// The views of sequences that were attended to, found again by their pages. Those that no call under
// way needs make room for others.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/api/pages/paged_parts.h"
#include "runtime/base/error.h"
#include "scheduler/cache/page_view.h"

namespace fasa {

class PagedViews {
 public:
  explicit PagedViews(PagedParts& parts);

  // Begins a call: no view is at work. Its number.
  uint64_t begin_call() { return ++clock_; }
  // The view is at work in this call.
  void use(PageView& view) const { view.last_used = clock_; }
  // A view of these pages, or of the first of them, at work from now on. Throws BudgetError.
  PageView& of(std::span<const int32_t> pages);
  void drop_stale();
  void forget_hot_rows();
  // Whoever keeps views from call to call asks for them anew where this has grown.
  uint64_t evictions() const { return evictions_; }

  // Does `work` again after each BudgetError that a view could make room for.
  template <typename Work>
  void with_room(const Work& work) {
    for (;;) {
      try {
        work();
        return;
      } catch (const BudgetError&) {
        if (!evict()) throw;
      }
    }
  }

  void add_memory(KvMemory* memory) const;

 private:
  bool evict();
  void share_longest(PageView& view, std::span<const int32_t> pages);

  PagedParts& parts_;
  BlockPool index_slices_;  // where pages are small
  std::vector<std::unique_ptr<PageView>> views_;
  uint64_t epoch_ = 0;  // of the store when no view was stale
  uint64_t clock_ = 0;  // of calls that had to be planned
  uint64_t evictions_ = 0;
};

}  // namespace fasa
