// Options of a selection besides its kind.
#pragma once

#include <cstdint>

namespace fasa {

struct SelectionOptions {
  uint64_t seed = 0;  // kind random
};

}  // namespace fasa
