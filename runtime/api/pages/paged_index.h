// Slices of sequences whose pages are smaller than kPageTokens. They are built on demand, before an
// attend: the append kernel reads stored rows as tokens and writes slices only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/api/pages/paged_request.h"
#include "runtime/api/pages/paged_views.h"

namespace fasa {

class PagedIndex {
 public:
  PagedIndex(PagedParts& parts, PagedViews& views)
      : parts_(parts),
        views_(views),
        slots_{DescriptorBuffer(parts.device, parts), DescriptorBuffer(parts.device, parts)} {}

  // Indexes the tokens of one layer appended to the request's views since the last call. `number`:
  // of the plan that the request belongs to.
  void make(const PagedRequest& request, uint64_t number, int layer, StreamView stream);
  void add_memory(KvMemory* memory) const {
    for (const DescriptorBuffer& slot : slots_) memory->device_scratch += slot.bytes();
    memory->device_scratch += row_buffer_.bytes();
  }

 private:
  // Slices to build before an attend. A piece lies in one of the caller's pages. The first pieces
  // of all sequences come before the second ones, because a sequence's tail takes one piece at a
  // time.
  struct Plan {
    std::vector<int> begins;  // per sequence
    std::vector<SequenceDesc> pieces;
    std::vector<size_t> rounds;  // ends in pieces
    uint64_t number = 0;         // attend plan that it belongs to; 0: none
    size_t slot = 0;
  };
  void make_plan(const PagedRequest& request, uint64_t number, int layer);
  void list_pieces(const PagedRequest& request, int layer);
  void reserve(size_t sequences);

  PagedParts& parts_;
  PagedViews& views_;
  std::array<DescriptorBuffer, 2> slots_;
  Buffer row_buffer_;  // scratch for rows: [sequence][kv_head][kPageTokens][row_bytes]
  Plan plan_;
};

}  // namespace fasa
