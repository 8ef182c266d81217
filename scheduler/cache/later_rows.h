// Rows of a sequence's first pages that may not be in memory yet, and their source. The last page
// is never among them: tails are made from it and tokens are written to it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "scheduler/row_source.h"

namespace fasa {

struct LaterRows {
  std::shared_ptr<RowSource> source = {};  // null: all rows are in memory
  int64_t pages = 0;

  // The sequence now has `total` pages. The caller makes sure that the last one has all its rows.
  void shorten(int64_t total) {
    pages = std::min(pages, std::max<int64_t>(0, total - 1));
    if (pages == 0) source.reset();
  }
};

}  // namespace fasa
