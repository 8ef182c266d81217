// Attention over a caller's pages, with a view for every sequence of the call. The tables of a call
// are reused for later layers with the same block table.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/api/pages/paged_request.h"
#include "runtime/api/pages/paged_views.h"
#include "runtime/base/tensor_view.h"

namespace fasa {

class PagedAttend {
 public:
  // All arguments outlive it. Step numbers run from 1 to `max_steps`.
  PagedAttend(PagedStreams& streams, PageStore& store, PagedViews& views, int32_t max_steps)
      : streams_(streams),
        engine_(streams.engine()),
        store_(store),
        views_(views),
        max_steps_(max_steps),
        slots_{DescriptorBuffer(engine_.device(), streams),
               DescriptorBuffer(engine_.device(), streams)} {}

  // Implements PagedRuntime::attend.
  void run(int layer, ConstTensorView q, const BlockTable& block_table,
           std::span<const int32_t> seq_lens, TensorView out, float* lse, StreamView stream);
  void add_memory(KvMemory* memory) const {
    for (const DescriptorBuffer& slot : slots_) memory->device_scratch += slot.bytes();
  }

 private:
  using Part = PagedRequest::Part;
  struct Plan {
    PagedRequest request;
    uint64_t epoch = 0;      // of the store; 0: none
    uint64_t evictions = 0;  // evictions of views when it was made
    int only_layer = -1;     // the only layer that has all its tokens; -1: all layers have
    size_t slot = 0;
    StepContext tables;
  };
  bool plan_matches(int layer, const BlockTable& block_table,
                    std::span<const int32_t> seq_lens) const;
  bool needs_own_tail(int layer, const Part& part) const;
  void make_plan(int layer, const BlockTable& block_table, std::span<const int32_t> seq_lens);
  void prepare_part(int layer, Part& part);
  void describe_parts();
  void begin_step_number(int layer);

  PagedStreams& streams_;
  StepEngine& engine_;
  PageStore& store_;
  PagedViews& views_;
  const int32_t max_steps_;
  std::array<DescriptorBuffer, 2> slots_;
  Plan plan_;
  int32_t step_number_ = 0;
  int last_layer_ = -1;  // last layer attended to
};

}  // namespace fasa
