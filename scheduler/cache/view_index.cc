#include "scheduler/cache/view_index.h"

#include <algorithm>

namespace fasa {

ViewIndex::ViewIndex(Device& device, const StepSettings& settings, BlockPool& slices)
    : sealed_(slices),
      tail_(device.allocate(MemorySpace::kDevice, static_cast<size_t>(settings.layout.tail_bytes()),
                            "slices of the newest pages")),
      state_(static_cast<size_t>(settings.layer_count())) {}

void ViewIndex::share(const ViewIndex& other, int64_t tokens) {
  const int64_t pages = std::min(tokens / kPageTokens, other.sealed_.pages());
  sealed_ = other.sealed_.fork(pages);
  for (size_t layer = 0; layer < state_.size(); ++layer) {
    const auto sealed = std::min<int64_t>(other.state_[layer].indexed / kPageTokens, pages);
    state_[layer] = {.indexed = static_cast<int>(sealed * kPageTokens), .tail_page = -1};
  }
}

void ViewIndex::cut(int64_t tokens) {
  const int64_t pages = tokens / kPageTokens;
  sealed_.truncate(pages);
  for (Layer& layer : state_) {
    const auto kept = std::min<int64_t>(layer.indexed / kPageTokens, pages) * kPageTokens;
    layer = {.indexed = static_cast<int>(kept), .tail_page = -1};
  }
}

int ViewIndex::begin_of(int layer, int tokens) const {
  const Layer& state = state_[static_cast<size_t>(layer)];
  const int page = (tokens - 1) / kPageTokens;
  const int begin = page * kPageTokens;
  if (state.indexed > begin && state.tail_page != page) return begin;
  return std::min(state.indexed, tokens);
}

}  // namespace fasa
