#include "offload/device.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace fasa {

Buffer::~Buffer() {
  if (data_ != nullptr) device_->do_free(space_, data_, bytes_);
}

Stream::~Stream() {
  if (device_ != nullptr) device_->destroy_stream(view_);
}

Event::~Event() {
  if (device_ != nullptr) device_->destroy_event(view_);
}

Graph::~Graph() {
  if (device_ != nullptr) device_->destroy_graph(view_);
}

Graph Device::record_graph(StreamView, std::span<const StreamView>, const char*,
                           const std::function<void()>&) {
  throw UsageError(name() + " records no graphs");
}
bool Device::launch(GraphView) { throw UsageError(name() + " launches no graphs"); }
uint64_t Device::graph_bytes(GraphView) const { return 0; }

void Device::copy_all(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream) {
  for (const CopyRange& range : ranges) {
    copy(range.destination, range.source, range.bytes, kind, stream);
  }
}

Buffer Device::allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  if (bytes == 0) return {};
  while (true) {
    try {
      return {this, space, do_allocate(space, bytes, purpose), bytes};
    } catch (const BudgetError&) {
      const bool reclaimed =
          std::any_of(reclaimers_.begin(), reclaimers_.end(),
                      [&](MemoryReclaimer* reclaimer) { return reclaimer->reclaim(space, bytes); });
      if (!reclaimed) throw;
    }
  }
}

}  // namespace fasa
