// Options of a selection besides its kind.
#pragma once

#include <cstdint>

namespace fasa {

struct SelectionOptions {
  int page_tokens = 1;  // kind fasa: tokens chosen together, by their mean key
  uint64_t seed = 0;    // kind random
};

}  // namespace fasa
