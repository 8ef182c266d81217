// What a block of a projection has to do.
#pragma once

#include <cstdint>

namespace fasa::cuda {

// Rows [first, end) of y, by weights that begin so far behind the first ones: elements, of packed
// ones bytes.
struct RowGroup {
  int64_t first = 0;
  int64_t end = 0;
  int64_t weights = 0;
};

}  // namespace fasa::cuda
