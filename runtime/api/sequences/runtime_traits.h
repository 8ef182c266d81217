// What follows from a runtime's settings, and never changes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/params.h"
#include "offload/store/retention.h"

namespace fasa {

// Bytes of one page of a sequence, all layers.
struct PageBytes {
  size_t rows = 0;
  size_t window_rows = 0;  // last part of `rows`; pages may lack it, see set_rollback_tokens()
  size_t slices = 0;

  bool operator==(const PageBytes&) const = default;
};

struct RuntimeTraits {
  RowDType row_dtype = RowDType::kBF16;
  PageBytes page;
  Retention retention = {};      // of the pages that sequences free
  bool loads_on_demand = false;  // see PageExchange::attach_pages()
  bool chunks = false;           // see PromptChunks::open_chunk()

  // True if a sequence that has all rows from page `first_page` on can be truncated to `tokens`
  // tokens.
  bool can_truncate(int64_t first_page, int64_t tokens) const {
    return retention.can_truncate(first_page, tokens);
  }
};

}  // namespace fasa
