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

  // The table is void: rows were rewritten, or step numbers restart. prepare() empties its slots.
  void forget() { valid_ = false; }
  // Called before a step: enqueues what makes a void table empty.
  void prepare(StreamView control);

  void describe(SequenceDesc* desc) const;

 private:
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
  bool valid_ = false;  // the table lists the hot rows
};

}  // namespace fasa
