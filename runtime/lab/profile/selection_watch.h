// A device that looks at the sets that another one's selections take, and passes everything on.
// Nothing is charged for it: on devices of the host the selection is the same operation with the
// same work; on CUDA a stream of its own copies sets to the host beside the step's work.
#pragma once

#include <span>
#include <vector>

#include "offload/laned_device.h"
#include "runtime/trace/set_overlap.h"

namespace fasa {

class SelectionWatch final : public LanedDevice {
 public:
  // `inner` outlives this.
  explicit SelectionWatch(Device& inner);

  // Since the last call, by layer. Waits for what is copied.
  std::vector<OverlapCount> take_overlap();

  const KernelTable& kernels() const override { return table_; }
  void copy_all(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream) override {
    inner_.copy_all(ranges, kind, within(stream));
  }

 private:
  // A layer's sets on the host: sequences, sizes, sets.
  struct Copied {
    Buffer memory;
    SelectParams params;  // of the last selection
    bool fresh = false;   // not observed yet
  };
  static void select_on_host(const SelectParams& params, StreamView stream);
  static void select_on_cuda(const SelectParams& params, StreamView stream);
  void copy_sets(const SelectParams& params, StreamView stream);
  void observe_copied();

  SetOverlap overlap_;
  KernelTable table_;
  std::vector<Copied> copied_;  // by layer; on CUDA
  Stream copies_;
  Event selected_;
  Event read_;  // the sets may be written again
};

}  // namespace fasa
