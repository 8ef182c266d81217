// Slices of sequences whose pages are smaller than ours: made when they are attended to, by the
// append kernel, whose tokens are then the stored rows. Nothing but slices comes of it.
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
        slots_{DescriptorBuffer(parts.device), DescriptorBuffer(parts.device)} {}

  // Of a layer of the request's views, of what was appended since the last time. `number`: of the
  // plan that the request is part of.
  void make(const PagedRequest& request, uint64_t number, int layer, StreamView stream);
  void add_memory(KvMemory* memory) const {
    for (const DescriptorBuffer& slot : slots_) memory->device_scratch += slot.bytes();
    memory->device_scratch += row_buffer_.bytes();
  }

 private:
  // Slices to be made before an attend. Pieces within one of the caller's pages, the first ones of
  // all sequences, then the second ones: a sequence's tail takes one at a time.
  struct Plan {
    std::vector<int> begins;  // of each sequence
    std::vector<SequenceDesc> pieces;
    std::vector<size_t> rounds;  // ends in pieces
    uint64_t number = 0;         // of the attend's plan that it belongs to; 0: none
    size_t slot = 0;
  };
  void make_plan(const PagedRequest& request, uint64_t number, int layer);
  void list_pieces(const PagedRequest& request, int layer);
  void reserve(size_t sequences);

  PagedParts& parts_;
  PagedViews& views_;
  std::array<DescriptorBuffer, 2> slots_;
  Buffer row_buffer_;  // rows pass through: [sequence][kv_head][kPageTokens][row_bytes]
  Plan plan_;
};

}  // namespace fasa
