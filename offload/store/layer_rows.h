// One layer's rows of a whole context in device memory, while a chunk of a prompt goes through that
// layer: rows on the host come back once, and new ones are read where they are written.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fasa {

struct LayerRows {
  std::byte* data = nullptr;  // [page][kv_head][kPageTokens][row_bytes]; null: rows are local
  int64_t page_bytes = 0;
  bool load = false;  // this piece is the layer's first: earlier rows are not there yet

  std::byte* page(int64_t index) const {
    return data != nullptr ? data + index * page_bytes : nullptr;
  }
};

}  // namespace fasa
