// Rows of a sequence's first pages that may not be there yet, and where they come from. Never of the
// last page, which tails are made from and tokens are written to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "scheduler/row_source.h"

namespace fasa {

struct LaterRows {
  std::shared_ptr<RowSource> source = {};  // null: all rows are there
  int64_t pages = 0;

  // The sequence has `total` pages now. The last one has all its rows: whoever shortens sees to it.
  void shorten(int64_t total) {
    pages = std::min(pages, std::max<int64_t>(0, total - 1));
    if (pages == 0) source.reset();
  }
};

}  // namespace fasa
