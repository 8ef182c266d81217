// Appends to a caller's pages. Kernels see a page as a sequence of its own that begins at position
// 0; pages that are filled one after the other are one sequence. The tables of a call are reused
// for later layers with the same slots.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/api/pages/paged_slot.h"
#include "runtime/api/pages/paged_views.h"
#include "runtime/base/tensor_view.h"

namespace fasa {

class PagedAppend {
 public:
  // All arguments outlive it.
  PagedAppend(PagedStreams& streams, PageStore& store, PagedViews& views)
      : streams_(streams),
        engine_(streams.engine()),
        store_(store),
        views_(views),
        slots_{PagedSlot(engine_.device(), streams), PagedSlot(engine_.device(), streams)} {}

  // Implements PagedRuntime::append.
  void run(int layer, ConstTensorView k, ConstTensorView v, std::span<const int64_t> slot_mapping,
           StreamView stream);
  // Call when the write-back buffer that the tables name has moved.
  void forget() { plan_.epoch = 0; }
  void add_memory(KvMemory* memory) const {
    for (const PagedSlot& slot : slots_) slot.add_memory(memory);
  }

 private:
  // Adjacent tokens that go to adjacent slots of one page.
  struct Run {
    int64_t page;
    int offset;
    int tokens;
    int64_t first_token;
  };
  // Tables of the last append.
  struct Plan {
    std::vector<int64_t> slot_mapping;
    std::vector<Run> runs;
    uint64_t epoch = 0;  // 0: none
    size_t slot = 0;
    int64_t stored = 0;  // tokens
    StepContext tables;
  };
  struct Groups;

  void find_runs(std::span<const int64_t> slot_mapping, std::vector<Run>* runs) const;
  void check_runs(int layer, const std::vector<Run>& runs) const;
  bool restarts(int layer, const Run& run) const {
    return run.offset == 0 && store_.held(run.page, layer) > 0;
  }
  Groups group(const std::vector<Run>& runs) const;
  void reserve(const Groups& groups, PagedSlot& slot, int64_t stored);
  void give_tails(const std::vector<Run>& runs, const Groups& groups);
  std::vector<size_t> without_tail(const std::vector<Run>& runs, const Groups& groups) const;
  void describe(const std::vector<Run>& runs, const Groups& groups, PagedSlot& slot);
  void upload(PagedSlot& slot, const std::vector<size_t>& restored);
  void make_plan(int layer, std::vector<Run> runs, std::span<const int64_t> slot_mapping);

  PagedStreams& streams_;
  StepEngine& engine_;
  PageStore& store_;
  PagedViews& views_;
  std::array<PagedSlot, 2> slots_;
  Plan plan_;
};

}  // namespace fasa
