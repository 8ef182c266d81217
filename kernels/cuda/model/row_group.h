// The work of a block of a projection.
#pragma once

#include <cstdint>

namespace fasa::cuda {

// Rows [first, end) of y, and the offset of their weights from the first ones: in elements, for
// packed weights in bytes.
struct RowGroup {
  int64_t first = 0;
  int64_t end = 0;
  int64_t weights = 0;
};

}  // namespace fasa::cuda
