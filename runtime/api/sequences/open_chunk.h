// A chunk of a prompt between open_chunk and close_chunk or drop_chunk.
#pragma once

#include <cstdint>

#include "runtime/base/ids.h"

namespace fasa {

struct OpenChunk {
  SequenceId sequence = {};
  int tokens = 0;
  int layer = 0;  // that pieces go through now
  int done = 0;   // its tokens
};

}  // namespace fasa
