// Views of sequences that were attended to, found again by their pages. Views that the current call
// does not use are evicted to make room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/api/pages/paged_streams.h"
#include "runtime/base/error.h"
#include "scheduler/cache/page_store.h"
#include "scheduler/cache/page_view.h"

namespace fasa {

class PagedViews {
 public:
  // At most `sequences` views. `fit_hot_rows`: as many as fit in half of the memory that is left,
  // else the settings' number. The others outlive it.
  PagedViews(PagedStreams& streams, PageStore& store, int sequences, bool fit_hot_rows);

  int hot_rows() const { return hot_rows_; }  // of each view

  // Begins a call, with no view in use.
  void begin_call() { ++clock_; }
  // Marks the view as used by this call.
  void use(PageView& view) const { view.last_used = clock_; }
  // The view whose pages are a prefix of these (or a new one); updates its last use. Throws
  // BudgetError.
  PageView& of(std::span<const int32_t> pages);
  void drop_stale();
  void forget_hot_rows();
  // Callers that keep views from call to call must look them up again when this has grown.
  uint64_t evictions() const { return evictions_; }

  // Runs `work`, and repeats it after each BudgetError as long as a view can be evicted.
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

  PagedStreams& streams_;
  StepEngine& engine_;
  PageStore& store_;
  const int max_sequences_;
  const int hot_rows_;
  std::vector<std::unique_ptr<PageView>> views_;
  uint64_t epoch_ = 0;  // of the store when views were last checked
  uint64_t clock_ = 0;  // number of planned calls
  uint64_t evictions_ = 0;
};

}  // namespace fasa
