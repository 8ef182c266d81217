#include "runtime/lab/analyze/set_observer.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace fasa {

SetObserver::SetObserver(Device& inner) : WrappedDevice(inner) {
  if (inner.traits().done_on_return) return;
  throw UsageError(fmt::format(
      "device '{}': selected sets cannot be observed there; use --device cpu", inner.name()));
}

void SetObserver::do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) {
  const auto* const resolve = std::get_if<ResolveParams>(&call);
  // A set is resolved in waves; each wave's parameters hold the whole set.
  if (resolve != nullptr && observer_ && resolve->begin == 0) observer_(*resolve);
  inner_.enqueue(call, stream, tag);
}

}  // namespace fasa
