// Hot rows of a sequence whose rows are on the host: slots with fetched rows, and the table that
// says which rows they hold. The reserved slots stay allocated; while memory is free, a wider set
// of slots can replace them.
#pragma once

#include <cstdint>

#include "kernels/params.h"
#include "offload/device.h"

namespace fasa {

class HotRows {
 public:
  HotRows(Device& device, const CacheLayout& layout) : device_(device), layout_(layout) {}

  // Allocates `slots` slots per head, once. Throws BudgetError.
  void reserve(int slots);
  void give_back();
  uint64_t bytes() const { return rows_.bytes() + table_.bytes(); }  // without wider slots

  // Switches to `slots` slots per head, more than are reserved; narrow() switches back. The new
  // table is empty. Widening waits for nothing; before narrowing, the sequence's work must be done.
  // Returns false, without any change, if memory is short. A narrowed sequence stays narrow.
  bool widen(int slots);
  void narrow();
  void drop_wide();
  bool may_widen() const { return table_ && wide_slots_ == 0 && !narrowed_; }
  bool wide() const { return wide_slots_ > 0; }
  uint64_t wide_bytes() const { return wide_rows_.bytes() + wide_table_.bytes(); }

  // Step numbers restart: the table's last uses are void.
  void forget() {
    state_ = State::kEmpty;
    lists_lost_rows_ = false;
  }
  // The table is no longer valid: the next step's restore empties its slots.
  void invalidate() {
    if (state_ == State::kEmpty) return;
    state_ = State::kSuspect;
    lists_lost_rows_ = true;
  }
  // The table may still list rows lost in an invalidation: decode steps fetch only some of them.
  bool lists_lost_rows() const { return lists_lost_rows_; }
  // True from an invalidation until the next decode step: the table lists the rows it lost.
  bool remembers() const { return state_ == State::kSuspect || state_ == State::kRemembered; }
  void decoded() {
    if (state_ == State::kRemembered) state_ = State::kValid;
  }
  // Enqueued before a step: fills an empty table.
  void prepare(StreamView control);

  void describe(SequenceDesc* desc) const;

 private:
  // Contents of the table.
  enum class State : uint8_t {
    kEmpty,       // no entries; prepare() fills it before the next step
    kValid,       // slots of the hot rows
    kSuspect,     // entries that are no longer valid
    kRemembered,  // empty slots, and the rows they held
  };
  const Buffer& table() const { return wide() ? wide_table_ : table_; }

  Device& device_;
  const CacheLayout& layout_;
  Buffer rows_;
  Buffer table_;
  Buffer wide_rows_;
  Buffer wide_table_;
  int slots_ = 0;
  int wide_slots_ = 0;  // 0: uses the reserved slots
  bool narrowed_ = false;
  State state_ = State::kEmpty;
  bool lists_lost_rows_ = false;
};

}  // namespace fasa
