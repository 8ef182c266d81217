// One sequence's part of the cache: its pages, and its private device memory. Created without
// memory; begin_step and reserve allocate it.
//
// Rows on the host are reached in one of two ways. A short sequence is local: each page has a
// device copy, which kernels read and write in place; new rows are written back to the host as
// well; and it has no slices until a set leaves something out. Past StepSettings::copied_pages its
// rows are read over the link: protected rows and hot rows replace the copies, once and for good.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/pages/block_pool.h"
#include "offload/pages/page_table.h"
#include "scheduler/cache/device_rows.h"
#include "scheduler/cache/hot_rows.h"
#include "scheduler/cache/later_rows.h"
#include "scheduler/selection/selection_history.h"
#include "scheduler/step_settings.h"

namespace fasa {

// The pools that pages come from.
struct KvPools {
  BlockPool rows;         // host, or device with rows on the device
  BlockPool slices;       // device
  BlockPool window_rows;  // device: window rows
  int hot_rows;           // of each sequence over the link; changes while none has any

  // See BlockPool.
  Fence take_fence() noexcept {
    return std::max({rows.take_fence(), slices.take_fence(), window_rows.take_fence()});
  }
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
  KvSequence(Device& device, const StepSettings& settings, KvPools& pools);

  int64_t length() const { return length_; }  // committed tokens
  // Shares the pages of the first `tokens` tokens of `other`. The next step rebuilds this
  // sequence's tail, protected rows and hot rows.
  void share(const KvSequence& other, int64_t tokens);
  void truncate(int64_t tokens);
  void commit(int64_t tokens) { length_ += tokens; }
  // Discards what a failed step wrote beyond the committed length.
  void invalidate();

  // Allows truncation and forks only within the last `tokens` tokens, or at 0. Older pages are
  // freed as the sequence grows: those of window rows, or all if every layer has a window. See
  // rollback_window.h.
  void set_rollback_tokens(int64_t tokens) { rollback_tokens_ = tokens; }
  int64_t rollback_tokens() const { return rollback_tokens_; }
  // Number of pages that can be freed; frees them. Their copies' last use must have passed.
  int64_t droppable() const;
  void drop_pages();
  // Frees window rows of pages before `end` unconditionally.
  void drop_window_rows(int64_t end);
  // True if all pages that the sequence needs at that length are still there.
  bool can_truncate_to(int64_t tokens) const;
  int64_t first_page() const { return first_page_; }
  bool has_page(int layer, int64_t page) const { return !table_of(layer).dropped(page); }

  RowAccess access() const { return access_; }
  // True if the copies of a local sequence would take more than hot rows once it has `tokens`
  // tokens.
  bool outgrows_copies(int64_t tokens) const;
  // From now on rows are read over the link. Frees the copies, except for rows = auto, where they
  // are lent from now on. The last use of copies must have passed.
  void read_over_link();

  // Reserves memory for `tokens` tokens in all. Throws BudgetError; then frees what this call
  // allocated.
  void reserve(int64_t tokens);
  // The same, without window rows for new pages before `first_window_page`.
  void reserve_from(int64_t first_window_page, int64_t tokens);
  // The same for growth in steps of `step_tokens`: counts pages that are freed on the way only
  // while the sequence holds them.
  void reserve(int64_t tokens, int step_tokens);
  // Snapshot of reserved memory, for rollback when begin_step fails. After the rollback, address
  // arrays may stay larger, and the last page may stay private. No work may be enqueued in between.
  struct Reserved {
    int64_t row_pages, slice_pages, window_pages;
    int64_t copies;
    int64_t row_places, slice_places, window_places, copy_places;  // table entries
    RowAccess access;
    bool tail, coded;
    bool hot;   // protected rows, hot rows
    bool wide;  // extra hot rows
  };
  Reserved reserved() const;
  void give_back_to(const Reserved& before) noexcept;
  // Call it once all memory that the failed step allocated is free: allocates copies that became
  // hot rows in it. If another user of the device took their memory, the next step allocates them.
  void take_back_copies(const Reserved& before) noexcept;
  const SequenceWork& work() const { return work_; }
  void takes_part(size_t slot, Fence step);
  void takes_part(Fence control);
  // What the next step's control work must come after: it overwrites tables and buffers that this
  // work may read.
  Fence overwritten() const { return overwrites_ ? work_.last() : Fence{}; }
  // Step numbers restart: hot rows start empty.
  void forget_hot_rows();

  // Enqueue on `control` the work that precedes a step: copy a shared page before it is written,
  // upload tables, rebuild tail and protected rows. Only the page copy may throw BudgetError.
  bool needs_private_page() const;
  void make_last_page_private(StreamView control);
  void upload_tables(StreamView control);  // after the work that overwritten() names
  // For a step of `tokens` new tokens: copies from the host what a local sequence's copies lack,
  // after a fork or a load.
  void fill_copies(int tokens, StreamView control);
  // Slices are made with the rows, or from the rows once they are needed: `code_slices` describes
  // that work for append (AppendParams::in_place), if there is any.
  bool coded() const { return coded_ || !uses_slices(); }
  void reserve_slices();  // for the committed tokens. Throws BudgetError; then nothing changes
  std::optional<SequenceDesc> code_slices();
  bool stale() const { return stale_; }
  void restored() { stale_ = false; }

  // Descriptor for kernels, valid after the upload. The step sets tokens, mode and write-back
  // buffer.
  SequenceDesc describe() const;
  // The same for the pages of window rows.
  SequenceDesc describe_window_rows() const;
  std::span<std::byte* const> row_blocks() const { return rows_.blocks(); }
  std::span<std::byte* const> slice_blocks() const { return slices_.blocks(); }
  std::span<std::byte* const> window_row_blocks() const { return window_rows_.blocks(); }

  const LaterRows& later_rows() const { return later_rows_; }
  void set_later_rows(LaterRows rows) { later_rows_ = std::move(rows); }

  // Device copies of rows over the link, lent by the runtime if the settings ask for them; null for
  // a local sequence. A fork begins without copies.
  DeviceRows* lent_copies() { return is_copied() ? nullptr : &device_rows_; }
  // Takes the first lent copy away; empty if there is none. Its memory may still be in use.
  Buffer take_oldest_copy() {
    overwrites_ = true;
    return device_rows_.take_oldest();
  }
  std::span<std::byte* const> lent_blocks() const {
    return is_copied() ? std::span<std::byte* const>() : device_rows_.blocks();
  }
  uint64_t copy_bytes() const { return device_rows_.copy_bytes(); }

  HotRows& hot_rows() { return hot_rows_; }
  const HotRows& hot_rows() const { return hot_rows_; }

  SelectionHistory* history() { return history_ ? &*history_ : nullptr; }

  uint64_t tail_bytes() const { return tail_.bytes(); }
  uint64_t hot_bytes() const { return hot_rows_.bytes() + protected_rows_.bytes(); }
  // Private device memory, and slices.
  uint64_t device_bytes() const;
  uint64_t table_bytes() const {
    return rows_.device_bytes() + slices_.device_bytes() + window_rows_.device_bytes() +
           device_rows_.table_bytes();
  }
  uint64_t host_table_bytes() const {
    return rows_.host_bytes() + slices_.host_bytes() + window_rows_.host_bytes() +
           device_rows_.host_table_bytes();
  }

  std::optional<std::string> failure;  // first device error in a step of this sequence

 private:
  bool uses_slices() const { return settings_.layout.slice.dims > 0; }
  const PageTable& table_of(int layer) const {
    return settings_.layer(layer).in_window_rows ? window_rows_ : rows_;
  }
  // Grows the pages of window rows to `window_tokens` tokens, all others to `tokens`.
  void grow(int64_t tokens, int64_t window_tokens, int64_t first_window_page = 0);
  void promise_window_rows(int64_t tokens, int64_t pages);
  // True if kernels read device copies in place of the rows on the host.
  bool is_copied() const { return access_ != settings_.access(); }
  bool needs_slices(int64_t tokens) const;
  void truncate_copies(int64_t pages) noexcept;

  Device& device_;
  const StepSettings& settings_;
  const KvPools& pools_;
  PageTable rows_;
  PageTable slices_;
  PageTable window_rows_;
  DeviceRows device_rows_;
  int64_t filled_copies_ = 0;  // first pages whose copies have all rows, if the rows are local
  RowAccess access_ = RowAccess::kLocal;
  LaterRows later_rows_;
  std::optional<SelectionHistory> history_;  // empty if the selection has no memory
  Buffer tail_;
  Buffer protected_rows_;
  HotRows hot_rows_;
  int64_t length_ = 0;
  int64_t rollback_tokens_;  // tokens; below 0: unlimited
  int64_t first_page_ = 0;   // pages between the sinks' pages and this one were freed
  SequenceWork work_;
  bool overwrites_ = false;
  bool stale_ = false;
  bool coded_ = false;  // slices are made with the rows
};

}  // namespace fasa
