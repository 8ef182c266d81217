// One sequence's part of the cache: its pages, and what the device keeps of it whole (tail,
// residents, hot rows). Created empty and without memory; begin_step and reserve give it some.
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
#include "scheduler/row_source.h"
#include "scheduler/selection/selection_history.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Where pages come from.
struct KvPools {
  BlockPool rows;    // host, or device with rows on the device
  BlockPool slices;  // device
};

// What the table of hot rows says.
enum class HotRowsState : uint8_t {
  kEmpty,       // nothing: it is filled anew before the next step
  kValid,       // where its rows are
  kSuspect,     // what is no longer to be trusted: the next step's restore empties its slots
  kRemembered,  // emptied slots, and which rows they held
};

class KvSequence {
 public:
  KvSequence(Device& device, const StepSettings& settings, KvPools& pools);

  int64_t length() const { return length_; }  // committed tokens
  // Shares the pages of the first `tokens` tokens of `other`; its own tail, residents and hot rows
  // are made again by the next step.
  void share(const KvSequence& other, int64_t tokens);
  void truncate(int64_t tokens);
  void commit(int64_t tokens) { length_ += tokens; }
  // What a step wrote beyond the committed length is not to be trusted.
  void invalidate();
  // Stamps begin anew: what the table of hot rows says no longer counts.
  void forget_hot_rows() { hot_rows_ = HotRowsState::kEmpty; }
  // The table of hot rows says which rows it lost, until the next step that decodes.
  bool remembers_hot_rows() const {
    return hot_rows_ == HotRowsState::kSuspect || hot_rows_ == HotRowsState::kRemembered;
  }
  void hot_rows_decoded() {
    if (hot_rows_ == HotRowsState::kRemembered) hot_rows_ = HotRowsState::kValid;
  }

  // Memory for `tokens` tokens in all. Throws BudgetError; what was had before is kept, what this
  // call added is given back.
  void reserve(int64_t tokens);
  // What is reserved now, and back to it: nothing of a step that cannot begin stays but, where there
  // were pages, room in the arrays of their addresses and a last page that is no longer shared.
  // Without work enqueued in between.
  struct Reserved {
    int64_t row_pages, slice_pages;
    int64_t row_places, slice_places, copy_places;  // in the tables
    bool whole;                                     // tail, residents, hot rows
    bool wide;                                      // hot rows beyond the layout's
  };
  Reserved reserved() const {
    return {rows_.pages(),           slices_.pages(),     rows_.capacity(), slices_.capacity(),
            device_rows_.capacity(), tail_ || residents_, wide_slots_ > 0};
  }
  void give_back_to(const Reserved& before);
  // Enqueues on `control` what must be done before a step: a page that others share is copied
  // before it is written, tables are uploaded, tail and residents are rebuilt, hot rows emptied.
  // The private page may throw BudgetError, the others enqueue only.
  bool needs_private_page() const;
  void make_last_page_private(StreamView control);
  void upload_tables(StreamView control);
  bool stale() const { return stale_; }
  void restored() { stale_ = false; }
  void empty_hot_rows(StreamView control);

  // As kernels see it once tables are uploaded; the step fills in tokens, mode and stage.
  SequenceDesc describe() const;
  std::span<std::byte* const> row_blocks() const { return rows_.blocks(); }
  std::span<std::byte* const> slice_blocks() const { return slices_.blocks(); }

  // Rows of the first pages that may not be there yet, null where all are. Never of the last page, which
  // tails are made from and tokens are written to.
  RowSource* row_source() const { return source_.get(); }
  int64_t sourced_pages() const { return sourced_pages_; }
  void set_row_source(std::shared_ptr<RowSource> source, int64_t pages);

  // What the device has copies of, where settings ask for any: the runtime deals them out. A fork
  // begins without.
  DeviceRows& device_rows() { return device_rows_; }
  const DeviceRows& device_rows() const { return device_rows_; }

  SelectionHistory* history() { return history_ ? &*history_ : nullptr; }

  // More hot rows for each head than the layout's, which stay allocated beside them: what is spare
  // goes to and fro without moving what was promised. Either begins with an empty table; widening
  // waits for nothing, before narrowing no work is under way. False, and nothing changed, where
  // there is no memory; once narrowed, a sequence stays so.
  bool widen_hot_rows(int slots);
  void narrow_hot_rows();
  bool may_widen() const { return hot_table_ && wide_slots_ == 0 && !narrowed_; }
  uint64_t wide_bytes() const { return wide_hot_.bytes() + wide_table_.bytes(); }

  uint64_t tail_bytes() const { return tail_.bytes(); }
  uint64_t hot_bytes() const;  // hot rows, their tables, residents
  uint64_t table_bytes() const {
    return rows_.device_bytes() + slices_.device_bytes() + device_rows_.table_bytes();
  }
  uint64_t host_table_bytes() const {
    return rows_.host_bytes() + slices_.host_bytes() + device_rows_.host_table_bytes();
  }

  std::optional<std::string> failure;  // the first error of a device failure while it was at work

 private:
  const Buffer& hot_table() const { return wide_slots_ > 0 ? wide_table_ : hot_table_; }
  void drop_wide_rows();
  bool uses_slices() const { return settings_.layout.slice.dims > 0; }
  void keep_source(int64_t tokens);

  Device& device_;
  const StepSettings& settings_;
  PageTable rows_;
  PageTable slices_;
  DeviceRows device_rows_;
  std::shared_ptr<RowSource> source_;
  int64_t sourced_pages_ = 0;
  std::optional<SelectionHistory> history_;  // where the selection remembers
  Buffer tail_;
  Buffer residents_;
  Buffer hot_;
  Buffer hot_table_;
  Buffer wide_hot_;
  Buffer wide_table_;
  int wide_slots_ = 0;  // 0: the layout's are used
  bool narrowed_ = false;
  int64_t length_ = 0;
  bool stale_ = false;
  HotRowsState hot_rows_ = HotRowsState::kEmpty;
};

}  // namespace fasa
