// The sequences that an attend or a prefill names: their pages and lengths.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/api/pages/paged_parts.h"

namespace fasa {

class PageView;

struct PagedRequest {
  // One sequence.
  struct Part {
    PageView* view = nullptr;        // attends only
    std::span<const int32_t> pages;  // of `table`
    int length = 0;
    int64_t first_open = 0;  // pages before it are full in all layers
    bool own_tail = false;
  };

  // Throws UsageError for a page that there is not.
  void take(const PagedParts& from, const BlockTable& block_table,
            std::span<const int32_t> seq_lens);
  bool matches(const BlockTable& block_table, std::span<const int32_t> seq_lens) const;
  // Throws UsageError where a sequence's pages hold less than is read.
  void require_held(const PagedParts& in, const char* call, int layer) const;
  int longest() const;

  std::vector<int32_t> table;  // what of the block table counts, page after page of the sequences
  std::vector<int32_t> lengths;
  std::vector<Part> parts;
};

// Throws UsageError.
void check_lengths(const PagedShape& shape, const char* call, const BlockTable& block_table,
                   std::span<const int32_t> seq_lens);

}  // namespace fasa
