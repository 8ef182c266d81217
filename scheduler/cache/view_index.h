// The slices of one sequence whose pages are smaller than ours: a sealed page of slices spans
// several of the caller's, so it is the sequence's, shared with those that began alike. Made from
// the rows, when the sequence is attended to.
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

  // Shares what the first `tokens` tokens of `other` have sealed. Throws BudgetError.
  void share(const ViewIndex& other, int64_t tokens);
  // Room for `tokens` tokens. Throws BudgetError; nothing changes then.
  void grow(int64_t tokens) { sealed_.grow(tokens / kPageTokens); }
  // What is beyond is not what it was. Streams must be idle.
  void cut(int64_t tokens);

  // From where on slices of a layer have to be made for `tokens` tokens to be there, the page of
  // the last of them in the tail.
  int begin_of(int layer, int tokens) const;
  // They were made up to there.
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
    int tail_page = -1;  // whose slices the tail holds, -1: none's
  };
  std::vector<Layer> state_;
};

}  // namespace fasa
