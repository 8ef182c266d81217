#include "runtime/lab/analyze/set_watch.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace fasa {

SetWatch::SetWatch(Device& inner) : LanedDevice(inner) {
  if (inner.kind() == DeviceKind::kCpu) return;
  throw UsageError(fmt::format(
      "sets of tokens are looked at on {}; allowed: the device cpu (--device cpu)", inner.name()));
}

void SetWatch::resolve(const ResolveParams& params, StreamView stream) {
  auto& watch = device_of<SetWatch>(stream);
  // A set goes through in waves; each of them has it whole.
  if (watch.observer_ && params.begin == 0) watch.observer_(params);
  passed_kernels().resolve(params, stream);
}

const KernelTable& SetWatch::kernels() const {
  static const KernelTable table = [] {
    KernelTable passed = passed_kernels();
    passed.resolve = resolve;
    return passed;
  }();
  return table;
}

}  // namespace fasa
