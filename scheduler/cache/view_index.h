// The slice index of one sequence whose row pages are smaller than kPageTokens. A sealed page of
// slices spans several row pages, so the index belongs to the sequence; sequences with a common
// prefix share it. It is computed from the rows when the sequence is attended to.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/pages/page_table.h"
#include "scheduler/step_settings.h"

namespace fasa {

class ViewIndex {
 public:
  // Throws BudgetError.
  ViewIndex(Device& device, const StepSettings& settings, BlockPool& slices);

  // Shares the sealed slices of the first `tokens` tokens of `other`. Throws BudgetError.
  void share(const ViewIndex& other, int64_t tokens);
  // Reserves `tokens` tokens. Throws BudgetError; then nothing changes.
  void grow(int64_t tokens) { sealed_.grow(tokens / kPageTokens); }
  // Discards all slices from `tokens` on. Streams must be idle.
  void cut(int64_t tokens);

  // The first token whose slices of `layer` are missing for an index of `tokens` tokens, with the
  // last page in the tail.
  int begin_of(int layer, int tokens) const;
  // Records that slices up to `tokens` were computed.
  void set_indexed(int layer, int tokens) {
    state_[static_cast<size_t>(layer)] = {tokens, (tokens - 1) / kPageTokens};
  }

  void upload(StreamView control) { sealed_.upload(control); }
  std::byte* const* slice_blocks() const { return sealed_.device_data(); }
  std::byte* tail() const { return tail_.data(); }
  uint64_t tail_bytes() const { return tail_.bytes(); }
  uint64_t table_bytes() const { return sealed_.device_bytes(); }
  uint64_t host_table_bytes() const { return sealed_.host_bytes(); }

 private:
  PageTable sealed_;
  Buffer tail_;
  struct Layer {
    int indexed = 0;     // tokens
    int tail_page = -1;  // page whose slices the tail holds; -1: none
  };
  std::vector<Layer> state_;
};

}  // namespace fasa
