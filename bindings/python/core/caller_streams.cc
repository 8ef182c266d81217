#include "bindings/python/core/caller_streams.h"

#include <fmt/format.h>

#include "runtime/api/caller_memory.h"
#include "runtime/base/error.h"
#include "runtime/fasa.hpp"

namespace fasa::python {
namespace {

constexpr uint64_t kLegacyStream = 1;  // cudaStreamLegacy, which 0 stands for

}  // namespace

StreamView CallerStreams::of(uint64_t number) {
  if (device_.kind() != DeviceKind::kCuda) {
    throw UsageError(
        fmt::format("stream = {}: not supported on {}; allowed: None", number, device_.name()));
  }
  const uint64_t native = number == 0 ? kLegacyStream : number;
  const auto known = known_.find(native);
  if (known != known_.end()) {
    require_alive(device_, known->second.view());
    return known->second.view();
  }
  Stream adopted = adopt_stream(device_, reinterpret_cast<void*>(native), "caller");
  return known_.emplace(native, std::move(adopted)).first->second.view();
}

}  // namespace fasa::python
