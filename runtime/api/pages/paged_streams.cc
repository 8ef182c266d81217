#include "runtime/api/pages/paged_streams.h"

#include <fmt/format.h>

namespace fasa {

void PagedStreams::require_usable() const {
  if (failure_) throw DeviceError(*failure_);
  if (half_done_) {
    throw DeviceError(
        "the process ran out of host memory while work was enqueued; the contents of the pages "
        "are lost; create a new runtime");
  }
}

void PagedStreams::require_usable(const char* call, int layer) const {
  require_usable();
  const int layers = engine_.geometry().layers;
  if (layer < 0 || layer >= layers) {
    throw UsageError(fmt::format("{} of layer {}; allowed: 0 to {}", call, layer, layers - 1));
  }
}

void PagedStreams::drain() {
  engine_.device().synchronize(last_.view());
  engine_.device().synchronize(engine_.control());
  engine_.executor().synchronize();
}

// Compute waits for all streams but the one that writes back.
void PagedStreams::order(Fence) {
  constexpr OperationTag kTag = tag_of(-1, Cause::kControl);
  engine_.device().wait(engine_.control(), last_.view(), kTag);
  engine_.executor().record_written_back(written_back_.view());
  engine_.device().wait(engine_.control(), written_back_.view(), kTag);
}

void PagedStreams::wait_for_tables(StreamView stream, OperationTag tag) {
  engine_.device().wait(stream, last_.view(), tag);
  engine_.device().wait(stream, engine_.tables_ready(), tag);
}

}  // namespace fasa
