#include "runtime/profile/selection_watch.h"

#include "kernels/cpu/kernels.h"
#include "offload/operation_names.h"
#include "runtime/base/error.h"

namespace fasa {

SelectionWatch::SelectionWatch(Device& inner) : LanedDevice(inner) {
  if (inner.kind() != DeviceKind::kCpu && inner.kind() != DeviceKind::kEmulated) {
    throw UsageError("selections can be watched on the devices cpu and emulated");
  }
}

void SelectionWatch::select(const SelectParams& params, StreamView stream) {
  auto& watch = device_of<SelectionWatch>(stream);
  watch.launch(stream, kernel_name(params), [&watch, params] {
    const KernelWork work = cpu::select(params);
    watch.overlap_.observe(params);
    return work;
  });
}

const KernelTable& SelectionWatch::kernels() const {
  static const KernelTable table = [] {
    KernelTable passed = passed_kernels();
    passed.select = select;
    return passed;
  }();
  return table;
}

}  // namespace fasa
