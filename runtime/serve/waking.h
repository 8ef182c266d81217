// A session on disk on its way into a sequence.
#pragma once

#include <memory>

#include "runtime/serve/parked_pages.h"
#include "runtime/serve/prefix_cache.h"

namespace fasa::serve {

struct Waking {
  ParkedPrefix prefix;
  bool rows_later = false;                  // when steps select them
  std::shared_ptr<ParkedPages> pages = {};  // once it has begun
};

}  // namespace fasa::serve
