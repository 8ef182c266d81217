// A chunk of a prompt between open_chunk and close_chunk or drop_chunk.
#pragma once

#include <cstdint>

#include "runtime/base/ids.h"

namespace fasa {

struct OpenChunk {
  struct Progress {  // of pieces through layers of one kind
    int layer = 0;
    int done = 0;  // its tokens
  };
  SequenceId sequence = {};
  int tokens = 0;
  Progress attention = {}, linear = {};
};

}  // namespace fasa
