// The sequences that an attend or a prefill names: their pages and lengths.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/cache/page_store.h"

namespace fasa {

class PageView;

// Page ids in sequence order: [sequences][columns], rows `stride` entries apart, in host memory.
// Entries beyond a sequence's length are ignored.
struct BlockTable {
  const int32_t* pages = nullptr;
  int64_t sequences = 0;
  int64_t columns = 0;
  int64_t stride = 0;
};

struct PagedRequest {
  // One sequence.
  struct Part {
    PageView* view = nullptr;        // in attends only
    std::span<const int32_t> pages;  // of `table`
    int length = 0;
    int64_t first_open = 0;  // all earlier pages are full in all layers
    bool own_tail = false;
  };

  // Throws UsageError for a page that does not exist.
  void take(const PageStore& store, const BlockTable& block_table,
            std::span<const int32_t> seq_lens);
  bool matches(const BlockTable& block_table, std::span<const int32_t> seq_lens) const;
  // Throws UsageError if a sequence's pages hold fewer tokens than the call reads.
  void require_held(const PageStore& store, const char* call, int layer) const;
  int longest() const;

  std::vector<int32_t> table;  // used entries of the block table, sequence by sequence
  std::vector<int32_t> lengths;
  std::vector<Part> parts;
};

// Throws UsageError for a length that does not fit the block table.
void check_lengths(int page_size, const char* call, const BlockTable& block_table,
                   std::span<const int32_t> seq_lens);

}  // namespace fasa
