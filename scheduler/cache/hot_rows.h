// The hot rows of a sequence whose rows are on the host: slots that keep fetched rows, and the
// table that says which rows they hold. Beside the layout's slots, which stay allocated, there may
// be wider ones for a while.
#pragma once

#include <cstdint>

#include "kernels/params.h"
#include "offload/device.h"

namespace fasa {

class HotRows {
 public:
  HotRows(Device& device, const CacheLayout& layout) : device_(device), layout_(layout) {}

  // The layout's slots, where it has any. Throws BudgetError.
  void reserve();
  void give_back();
  uint64_t bytes() const { return rows_.bytes() + table_.bytes() + wide_bytes(); }

  // More slots for each head than the layout's: extra slots come and go without moving what
  // was promised. Either begins with an empty table; widening waits for nothing, before narrowing
  // no work is under way. False, and nothing changed, where there is no memory; once narrowed, a
  // sequence stays so.
  bool widen(int slots);
  void narrow();
  void drop_wide();
  bool may_widen() const { return table_ && wide_slots_ == 0 && !narrowed_; }
  bool wide() const { return wide_slots_ > 0; }
  uint64_t wide_bytes() const { return wide_rows_.bytes() + wide_table_.bytes(); }

  // Step numbers begin anew: the table's last uses no longer count.
  void forget() { state_ = State::kEmpty; }
  // What the table says is not to be trusted: the next step's restore empties its slots.
  void invalidate() {
    if (state_ != State::kEmpty) state_ = State::kSuspect;
  }
  // The table says which rows it lost, until the next step that decodes.
  bool remembers() const { return state_ == State::kSuspect || state_ == State::kRemembered; }
  void decoded() {
    if (state_ == State::kRemembered) state_ = State::kValid;
  }
  // Enqueued before a step: a table that says nothing is filled.
  void prepare(StreamView control);

  void describe(SequenceDesc* desc) const;

 private:
  // What the table says.
  enum class State : uint8_t {
    kEmpty,       // nothing: it is filled anew before the next step
    kValid,       // where its rows are
    kSuspect,     // what is no longer to be trusted
    kRemembered,  // emptied slots, and which rows they held
  };
  const Buffer& table() const { return wide() ? wide_table_ : table_; }

  Device& device_;
  const CacheLayout& layout_;
  Buffer rows_;
  Buffer table_;
  Buffer wide_rows_;
  Buffer wide_table_;
  int wide_slots_ = 0;  // 0: the layout's are used
  bool narrowed_ = false;
  State state_ = State::kEmpty;
};

}  // namespace fasa
