// A session on disk that is being read into a sequence.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/serve/prefix_cache.h"
#include "runtime/serve/suspended_pages.h"

namespace fasa::serve {

struct Resuming {
  SuspendedPrefix prefix;
  bool rows_later = false;                     // rows are read when steps select them
  std::shared_ptr<SuspendedPages> pages = {};  // set once reading has begun
  size_t state_bytes = 0;                      // that the sequence has got of its state
};

}  // namespace fasa::serve
