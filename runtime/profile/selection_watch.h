// A device that looks at the sets that another one's selections take, and passes everything on.
// Nothing is charged for it: the selection is the same operation with the same work.
#pragma once

#include <vector>

#include "offload/laned_device.h"
#include "runtime/set_overlap.h"

namespace fasa {

class SelectionWatch final : public LanedDevice {
 public:
  // `inner`: a cpu or emulated device, whose memory the host reads. It outlives this.
  explicit SelectionWatch(Device& inner);

  std::vector<OverlapCount> take_overlap() { return overlap_.take(); }

  const KernelTable& kernels() const override;

 private:
  static void select(const SelectParams& params, StreamView stream);

  SetOverlap overlap_;
};

}  // namespace fasa
