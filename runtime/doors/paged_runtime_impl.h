// What stands behind PagedRuntime: the pages, the views of sequences made of them, and the same
// pipeline as every door's. A call's tables are kept for the layers that follow with the same.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/doors/fetch_counters.h"
#include "runtime/doors/paged_guard.h"
#include "runtime/doors/paged_runtime.h"
#include "scheduler/cache/page_store.h"
#include "scheduler/cache/page_view.h"
#include "scheduler/descriptor_buffer.h"
#include "scheduler/step_pipeline.h"
#include "scheduler/step_scratch.h"

namespace fasa {

class PagedRuntime::Impl {
 public:
  Impl(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
       const std::vector<int16_t>& slice_dims, const PagedShape& shape);
  ~Impl();
  Impl(const Impl&) = delete;  // streams refer to it
  Impl& operator=(const Impl&) = delete;

  const Geometry& geometry() const { return geometry_; }
  const PagedShape& shape() const { return shape_; }
  void append(int layer, ConstTensorView k, ConstTensorView v,
              std::span<const int64_t> slot_mapping, StreamView stream);
  void attend(int layer, ConstTensorView q, const BlockTable& block_table,
              std::span<const int32_t> seq_lens, TensorView out, float* lse, StreamView stream);
  void prefill(int layer, ConstTensorView q, const BlockTable& block_table,
               std::span<const int32_t> seq_lens, std::span<const int32_t> query_lens,
               TensorView out, float* lse, StreamView stream);
  void read(int64_t page, int layer, int first, TensorView k, TensorView v, StreamView stream);
  void copy_pages(std::span<const PageCopy> copies);
  void drop_pages(std::span<const int64_t> pages);
  int held(int64_t page, int layer) const;
  KvMemory memory() const;
  FetchMetrics metrics();
  void reset_metrics();

 private:
  // Tokens side by side that go to slots side by side of one page.
  struct Run {
    int64_t page;
    int offset;
    int tokens;
    int64_t first_token;
  };
  // Tables on the device, and the arrays of addresses that they refer to. Two take turns.
  struct Slot {
    explicit Slot(Device& device)
        : step(device), rows(device, "page tables"), slices(device, "page tables") {}
    DescriptorBuffer step;
    PointerArray rows;  // appends and prefills: a view has its own
    PointerArray slices;
  };
  // The tables of the last append.
  struct AppendPlan {
    std::vector<int64_t> slot_mapping;
    std::vector<Run> runs;
    uint64_t epoch = 0;  // 0: none
    size_t slot = 0;
    int64_t stored = 0;  // tokens
    StepBatch tables;
  };
  // One sequence of an attend or a prefill.
  struct Part {
    PageView* view = nullptr;        // attends only
    std::span<const int32_t> pages;  // of Asked::table
    int length = 0;
    int64_t first_open = 0;  // pages before it are full in all layers
    bool own_tail = false;
  };
  // The sequences that a call names.
  struct Asked {
    std::vector<int32_t> table;  // what of the block table counts
    std::vector<int32_t> lengths;
    std::vector<Part> parts;
  };
  struct AttendPlan : Asked {
    uint64_t number = 0;
    uint64_t epoch = 0;   // 0: none
    int only_layer = -1;  // others do not have all of its tokens yet; -1: all have
    size_t slot = 0;
    StepBatch tables;
  };

  // Pages never move, so that a plan holds until others are asked for.
  struct PrefillPlan : Asked {
    std::vector<int32_t> query_lens;
    bool made = false;
    size_t slot = 0;
    StepBatch tables;
  };

  // Slices to be made before an attend. Pieces within one of the caller's pages, the first ones of
  // all sequences, then the second ones: a sequence's tail takes one at a time.
  struct IndexPlan {
    std::vector<int> begins;  // of each sequence
    std::vector<SequenceDesc> pieces;
    std::vector<size_t> rounds;  // ends in pieces
    uint64_t attend_plan = 0;    // AttendPlan::number that it belongs to; 0: none
    size_t slot = 0;
  };

  void require_usable(const char* call, int layer) const;
  void require_page(int64_t page) const;
  void drain();

  void find_runs(std::span<const int64_t> slot_mapping, std::vector<Run>* runs) const;
  void check_runs(int layer, const std::vector<Run>& runs) const;
  bool restarts(int layer, const Run& run) const {
    return run.offset == 0 && store_.held(run.page, layer) > 0;
  }
  struct Groups;
  Groups group(const std::vector<Run>& runs) const;
  void reserve_append(const Groups& groups, Slot& slot, int64_t stored);
  void give_tails(const std::vector<Run>& runs, const Groups& groups);
  std::vector<size_t> without_tail(const std::vector<Run>& runs, const Groups& groups) const;
  void upload_append(Slot& slot, const std::vector<size_t>& restored);
  void plan_append(int layer, std::vector<Run> runs, std::span<const int64_t> slot_mapping);
  void describe_groups(const std::vector<Run>& runs, const Groups& groups, Slot& slot);
  void restore(DescriptorBuffer& slot);

  void check_lengths(const char* call, const BlockTable& block_table,
                     std::span<const int32_t> seq_lens) const;
  bool plan_matches(int layer, const BlockTable& block_table,
                    std::span<const int32_t> seq_lens) const;
  int64_t pages_for(int length) const { return (length + shape_.page_size - 1) / shape_.page_size; }
  void require_held(const char* call, int layer, const Part& part, int64_t index) const;
  bool needs_own_tail(int layer, const Part& part) const;
  void plan_attend(int layer, const BlockTable& block_table, std::span<const int32_t> seq_lens);
  void take_table(const BlockTable& block_table, std::span<const int32_t> seq_lens, Asked* asked);
  void prepare_part(int layer, Part& part);
  void drop_stale_views();
  PageView& view_of(std::span<const int32_t> pages);
  void share_longest(PageView& view, std::span<const int32_t> pages);
  bool evict_view();
  template <typename Work>
  void with_room(const Work& work) {  // views that are not needed make room
    for (;;) {
      try {
        work();
        return;
      } catch (const BudgetError&) {
        if (!evict_view()) throw;
      }
    }
  }
  void describe_parts();
  void begin_stamp(int layer);

  int64_t check_queries(std::span<const int32_t> seq_lens,
                        std::span<const int32_t> query_lens) const;
  bool prefill_matches(const BlockTable& block_table, std::span<const int32_t> seq_lens,
                       std::span<const int32_t> query_lens) const;
  PrefillShape prefill_scratch() const;
  void reserve_prefill(Slot& slot);
  void describe_prefill(Slot& slot);
  void plan_prefill(int layer, const BlockTable& block_table, std::span<const int32_t> seq_lens,
                    std::span<const int32_t> query_lens);

  // Pages smaller than ours: slices of what was appended since the last attend.
  bool indexes() const { return store_.small() && settings_.layout.slice.dims > 0; }
  void list_index_pieces(int layer);
  void reserve_index();
  void plan_index(int layer);
  void make_index(int layer, StreamView stream);

  Device& device_;
  const Geometry geometry_;
  const PagedShape shape_;
  StepSettings settings_;
  PageStore store_;
  StepScratch scratch_;
  BlockPool index_slices_;  // where pages are small: of the views
  Stream control_;
  Event tables_ready_;
  Event last_;  // the call before has passed: callers may change streams
  std::unique_ptr<StepPipeline> pipeline_;
  std::array<Slot, 2> append_slots_;
  std::array<Slot, 2> attend_slots_;
  std::array<Slot, 2> prefill_slots_;
  std::array<DescriptorBuffer, 2> index_slots_;
  PointerArray read_blocks_;
  Buffer slice_dims_;
  Buffer index_stage_;  // rows pass through: [sequence][kv_head][kPageTokens][row_bytes]
  FetchCounters counters_;
  std::vector<std::unique_ptr<PageView>> views_;
  AppendPlan append_plan_;
  AttendPlan attend_plan_;
  PrefillPlan prefill_plan_;
  IndexPlan index_plan_;
  std::vector<Run> found_runs_;
  uint64_t views_epoch_ = 0;  // of the store when no view was stale
  uint64_t clock_ = 0;        // of attends that had to be planned
  int32_t stamp_ = 0;
  int last_layer_ = -1;  // that was attended to
  PagedGuard guard_;
};

}  // namespace fasa
