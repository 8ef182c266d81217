// One sequence's part of the cache: its pages, and what the device keeps of it whole (tail,
// protected rows, hot rows). Created empty and without memory; begin_step and reserve give it some.
#pragma once

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

// Where pages come from.
struct KvPools {
  BlockPool rows;         // host, or device with rows on the device
  BlockPool slices;       // device
  BlockPool window_rows;  // device: window rows
};

class KvSequence {
 public:
  KvSequence(Device& device, const StepSettings& settings, KvPools& pools);

  int64_t length() const { return length_; }  // committed tokens
  // Shares the pages of the first `tokens` tokens of `other`; its own tail, protected rows and hot
  // rows are made again by the next step.
  void share(const KvSequence& other, int64_t tokens);
  void truncate(int64_t tokens);
  void commit(int64_t tokens) { length_ += tokens; }
  // What a step wrote beyond the committed length is not to be trusted.
  void invalidate();

  // It will be truncated and forked at most `tokens` tokens from its end, or at 0: pages behind
  // that are dropped as it grows, of the window rows, or where every layer sees a window only. See
  // rollback_window.h.
  void set_rollback_tokens(int64_t tokens) { rollback_tokens_ = tokens; }
  int64_t rollback_tokens() const { return rollback_tokens_; }
  // Pages that may be dropped; drops them. Streams are idle then.
  int64_t droppable() const;
  void drop_pages();
  void drop_window_rows(int64_t end);  // pages before `end`, wanted or not
  // Whether it can be cut there: all pages are kept that are needed to go on.
  bool can_truncate_to(int64_t tokens) const;
  int64_t first_page() const { return first_page_; }
  bool has_page(int layer, int64_t page) const { return !table_of(layer).dropped(page); }

  // Memory for `tokens` tokens in all. Throws BudgetError; what was had before is kept, what this
  // call added is given back.
  void reserve(int64_t tokens);
  // ... in steps of `step_tokens`: of pages that are dropped on the way no more than it has at a
  // time.
  void reserve(int64_t tokens, int step_tokens);
  // What is reserved now, and back to it: nothing of a step that cannot begin stays but, where
  // there were pages, room in the arrays of their addresses and a last page that is no longer
  // shared. Without work enqueued in between.
  struct Reserved {
    int64_t row_pages, slice_pages, window_pages;
    int64_t row_places, slice_places, window_places, copy_places;  // in the tables
    bool whole;                                                    // tail, protected rows, hot rows
    bool wide;                                                     // hot rows beyond the layout's
  };
  Reserved reserved() const {
    return {rows_.pages(),           slices_.pages(),          window_rows_.pages(),
            rows_.capacity(),        slices_.capacity(),       window_rows_.capacity(),
            device_rows_.capacity(), tail_ || protected_rows_, hot_rows_.wide()};
  }
  void give_back_to(const Reserved& before);
  // Enqueues on `control` what must be done before a step: a page that others share is copied
  // before it is written, tables are uploaded, tail and protected rows are rebuilt.
  // The private page may throw BudgetError, the others enqueue only.
  bool needs_private_page() const;
  void make_last_page_private(StreamView control);
  void upload_tables(StreamView control);
  bool stale() const { return stale_; }
  void restored() { stale_ = false; }

  // As kernels see it once tables are uploaded; the step fills in tokens, mode and write-back buffer.
  SequenceDesc describe() const;
  // The same with the pages of window rows.
  SequenceDesc describe_window_rows() const;
  std::span<std::byte* const> row_blocks() const { return rows_.blocks(); }
  std::span<std::byte* const> slice_blocks() const { return slices_.blocks(); }
  std::span<std::byte* const> window_row_blocks() const { return window_rows_.blocks(); }

  const LaterRows& later_rows() const { return later_rows_; }
  void set_later_rows(LaterRows rows) { later_rows_ = std::move(rows); }

  // What the device has copies of, where settings ask for any: the runtime deals them out. A fork
  // begins without.
  DeviceRows& device_rows() { return device_rows_; }
  const DeviceRows& device_rows() const { return device_rows_; }

  HotRows& hot_rows() { return hot_rows_; }
  const HotRows& hot_rows() const { return hot_rows_; }

  SelectionHistory* history() { return history_ ? &*history_ : nullptr; }

  uint64_t tail_bytes() const { return tail_.bytes(); }
  uint64_t hot_bytes() const { return hot_rows_.bytes() + protected_rows_.bytes(); }
  uint64_t table_bytes() const {
    return rows_.device_bytes() + slices_.device_bytes() + window_rows_.device_bytes() +
           device_rows_.table_bytes();
  }
  uint64_t host_table_bytes() const {
    return rows_.host_bytes() + slices_.host_bytes() + window_rows_.host_bytes() +
           device_rows_.host_table_bytes();
  }

  std::optional<std::string> failure;  // the first error of a device failure while it was at work

 private:
  bool uses_slices() const { return settings_.layout.slice.dims > 0; }
  const PageTable& table_of(int layer) const {
    return settings_.layer(layer).in_window_rows ? window_rows_ : rows_;
  }
  // Pages of window rows up to `window_tokens` tokens, and up to `tokens` of all others.
  void grow(int64_t tokens, int64_t window_tokens);
  void promise_window_rows(int64_t tokens, int64_t pages);
  bool drops_rows() const { return !settings_.has_window_rows() && first_page_ > 0; }

  Device& device_;
  const StepSettings& settings_;
  PageTable rows_;
  PageTable slices_;
  PageTable window_rows_;
  DeviceRows device_rows_;
  LaterRows later_rows_;
  std::optional<SelectionHistory> history_;  // where the selection remembers
  Buffer tail_;
  Buffer protected_rows_;
  HotRows hot_rows_;
  int64_t length_ = 0;
  int64_t rollback_tokens_;  // tokens, below 0: all
  int64_t first_page_ = 0;   // of what is dropped, none between the sinks' pages and this is kept
  bool stale_ = false;
};

}  // namespace fasa
