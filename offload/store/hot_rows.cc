#include "offload/store/hot_rows.h"

#include <utility>

#include "runtime/base/error.h"

namespace fasa {

void HotRows::reserve(int slots) {
  const auto ensure = [&](Buffer& buffer, int64_t bytes, std::string_view purpose) {
    if (buffer || bytes == 0) return;
    buffer = device_.allocate(MemorySpace::kDevice, static_cast<size_t>(bytes), purpose);
  };
  ensure(rows_, layout_.hot_bytes(slots), "hot rows");
  ensure(table_, layout_.hot_table_bytes(slots), "table of hot rows");
  slots_ = slots;
}

void HotRows::give_back() {
  rows_ = Buffer();
  table_ = Buffer();
  slots_ = 0;
  forget();
}

bool HotRows::widen(int slots) {
  try {
    Buffer rows = device_.allocate(MemorySpace::kDevice,
                                   static_cast<size_t>(layout_.hot_bytes(slots)), "hot rows");
    wide_table_ =
        device_.allocate(MemorySpace::kDevice, static_cast<size_t>(layout_.hot_table_bytes(slots)),
                         "table of hot rows");
    wide_rows_ = std::move(rows);
  } catch (const BudgetError&) {
    return false;
  }
  wide_slots_ = slots;
  forget();
  return true;
}

void HotRows::narrow() {
  drop_wide();
  narrowed_ = true;
}

void HotRows::drop_wide() {
  wide_rows_ = Buffer();
  wide_table_ = Buffer();
  wide_slots_ = 0;
  forget();
}

void HotRows::prepare(StreamView control) {
  if (valid_ || !table_) return;
  device_.fill(table().data(), 0xff, table().bytes(), control, tag_of(-1, Cause::kControl));
  valid_ = true;
}

void HotRows::describe(SequenceDesc* desc) const {
  desc->hot = wide() ? wide_rows_.data() : rows_.data();
  desc->hot_table = table().as<int32_t>();
  desc->hot_rows = wide() ? wide_slots_ : slots_;
}

}  // namespace fasa
