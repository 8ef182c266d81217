// A session on disk on its way into a sequence.
#pragma once

#include <memory>

#include "runtime/serve/prefix_cache.h"
#include "runtime/serve/suspended_pages.h"

namespace fasa::serve {

struct Resuming {
  SuspendedPrefix prefix;
  bool rows_later = false;                     // when steps select them
  std::shared_ptr<SuspendedPages> pages = {};  // once it has begun
};

}  // namespace fasa::serve
