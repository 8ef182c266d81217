// One sequence's part of the cache: its rows in each layer group, its slices, what it remembers
// beside them (SequenceMemory), and its length.
// Created without memory; begin_step and reserve allocate it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/params.h"
#include "offload/pages/block_pool.h"
#include "offload/store/row_store.h"
#include "runtime/base/error.h"
#include "scheduler/cache/linear_state.h"
#include "scheduler/cache/rollback_window.h"
#include "scheduler/cache/sequence_slices.h"
#include "scheduler/selection/selection_history.h"
#include "scheduler/step_settings.h"

namespace fasa {

// What sequences take their memory from.
struct KvStores {
  // By layer group: the main layout, then window rows, if there are any.
  std::vector<std::unique_ptr<RowStore>> rows;
  BlockPool slices;     // device
  LinearLayout linear;  // of states
  Fences& passing;      // of the work that uses them

  KvStores(Device& device, const StepSettings& settings, Fences& fences);
  // See BlockPool.
  Fence take_fence() noexcept;
  void trim() noexcept;
};

// The newest work that a sequence's memory takes part in: of either slot's steps, and control work.
// If that work fails, the sequence's contents are lost. A fork begins with its parent's.
struct SequenceWork {
  std::array<Fence, 2> steps;  // by slot
  Fence control;

  Fence last() const { return std::max({steps[0], steps[1], control}); }
};

class KvSequence {
 public:
  KvSequence(const StepSettings& settings, KvStores& stores);
  KvSequence(const KvSequence&) = delete;  // the rollback window refers to it
  KvSequence& operator=(const KvSequence&) = delete;

  int64_t length() const { return length_; }  // committed tokens
  SequenceRows& rows() const { return *rows_.front(); }
  SequenceRows* window_rows() const { return rows_.size() > 1 ? rows_.back().get() : nullptr; }
  SequenceRows& rows_of(int layer) const;
  std::span<const std::unique_ptr<SequenceRows>> groups() const { return rows_; }
  const SequenceSlices& slices() const { return slices_; }
  std::span<const std::unique_ptr<SequenceMemory>> memories() const { return memories_; }
  // Those of this kind; null: the model or selection has none.
  SelectionHistory* history() const { return history_; }
  LinearState* linear() const { return linear_; }

  // Shares the pages of the first `tokens` tokens of `other`, and what it remembers. The next step
  // rebuilds this sequence's tail, protected rows and hot rows. `control`: SequenceMemory::share().
  // Throws BudgetError.
  void share(const KvSequence& other, int64_t tokens, const Stream& control);
  void truncate(int64_t tokens);
  // Begins a step for what it remembers beside pages: see SequenceMemory::begin().
  void begin(int64_t tokens, StepMode mode, bool undoable, const Stream& control);
  void commit(int64_t tokens);
  void add_pages(int64_t tokens) { length_ += tokens; }
  // Discards what a failed step wrote beyond the committed length. `computed`: kernels may have
  // advanced what the sequence remembers.
  void abort(bool computed);
  void invalidate();  // pages alone

  // Frees what rollback.droppable() counts. The copies' last use must have passed.
  void drop_pages();
  // See SequenceRows.
  void read_over_link();

  // Reserves memory for `tokens` tokens in all, without window rows for new pages before
  // `first_window_page`. Throws BudgetError; then frees what this call allocated.
  void reserve(int64_t tokens, int64_t first_window_page = 0);
  // Like reserve(), for growth in steps of `step_tokens`: reserves the peak, since window pages are
  // freed on the way.
  void reserve_steps(int64_t tokens, int step_tokens);
  // Snapshot of reserved memory, for rollback when begin_step fails: see SequenceRows.
  struct Mark {
    std::array<SequenceRows::Mark, 2> rows;
    SequenceSlices::Mark slices;
    std::vector<bool> reserved;  // memories
  };
  void reserve_memories();  // throws BudgetError
  Mark mark() const;
  void back_to(const Mark& mark) noexcept;
  void retake(const Mark& mark) noexcept;

  const SequenceWork& work() const { return work_; }
  void takes_part(size_t slot, Fence step);
  void takes_part(Fence control);
  // What the next step's control work must come after: it overwrites tables and buffers that this
  // work may read.
  Fence overwritten() const;

  // Allocates the copy of a shared page that is written next. False: there is no such page. Throws
  // BudgetError; then nothing changes.
  bool reserve_private_page();
  // Enqueue on `control` the work that precedes a step: copy that page, upload tables, fill copies
  // and hot rows.
  void make_last_page_private(StreamView control);
  void upload_tables(StreamView control);  // after the work that overwritten() names
  void prepare(int tokens, StreamView control);
  // `code_slices` describes the work that makes missing slices from rows (AppendParams::in_place),
  // if there is any; reserve_slices() gives it memory. Throws BudgetError; then nothing changes.
  void reserve_slices();
  std::optional<SequenceDesc> code_slices();
  bool stale() const { return stale_; }
  void restored() { stale_ = false; }
  // Descriptor for kernels, valid after the upload. The step sets tokens, mode and write-back
  // buffer.
  SequenceDesc describe() const;

  // Private device memory, slices, and memories.
  uint64_t device_bytes() const;

  RollbackWindow rollback;
  std::optional<std::string> failure;  // first device error in a step of this sequence
  void require_usable() const {        // throws DeviceError after such a failure
    if (failure) throw DeviceError(*failure);
  }

 private:
  void grow_slices(int64_t tokens);

  const StepSettings& settings_;
  std::vector<std::unique_ptr<SequenceRows>> rows_;  // by layer group
  SequenceSlices slices_;
  std::vector<std::unique_ptr<SequenceMemory>> memories_;
  SelectionHistory* history_ = nullptr;
  LinearState* linear_ = nullptr;
  int64_t length_ = 0;
  SequenceWork work_;
  bool stale_ = false;
};

}  // namespace fasa
