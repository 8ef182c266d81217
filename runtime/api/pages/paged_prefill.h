// Exact attention of prompts over a caller's pages, which already hold the new rows. Nothing is
// selected, so no view is needed. Pages never move, so the tables stay valid until a call names
// other pages.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/api/pages/paged_append.h"
#include "runtime/api/pages/paged_request.h"
#include "runtime/api/pages/paged_slot.h"
#include "runtime/api/pages/paged_views.h"
#include "runtime/base/tensor_view.h"

namespace fasa {

class PagedPrefill {
 public:
  // All arguments outlive it.
  PagedPrefill(PagedStreams& streams, PageStore& store, PagedViews& views, PagedAppend& append)
      : streams_(streams),
        engine_(streams.engine()),
        store_(store),
        views_(views),
        append_(append),
        slots_{PagedSlot(engine_.device(), streams), PagedSlot(engine_.device(), streams)} {}

  // Implements PagedRuntime::prefill.
  void run(int layer, ConstTensorView q, const BlockTable& block_table,
           std::span<const int32_t> seq_lens, std::span<const int32_t> query_lens, TensorView out,
           float* lse, StreamView stream);
  void add_memory(KvMemory* memory) const {
    for (const PagedSlot& slot : slots_) slot.add_memory(memory);
  }

 private:
  struct Plan {
    PagedRequest request;
    std::vector<int32_t> query_lens;
    bool made = false;
    size_t slot = 0;
    StepContext tables;
  };
  int64_t check_queries(std::span<const int32_t> seq_lens,
                        std::span<const int32_t> query_lens) const;
  bool plan_matches(const BlockTable& block_table, std::span<const int32_t> seq_lens,
                    std::span<const int32_t> query_lens) const;
  PrefillCapacities capacities() const;
  void reserve(PagedSlot& slot);
  void describe(PagedSlot& slot);
  void make_plan(int layer, const BlockTable& block_table, std::span<const int32_t> seq_lens,
                 std::span<const int32_t> query_lens);

  PagedStreams& streams_;
  StepEngine& engine_;
  PageStore& store_;
  PagedViews& views_;
  PagedAppend& append_;
  std::array<PagedSlot, 2> slots_;
  Plan plan_;
};

}  // namespace fasa
