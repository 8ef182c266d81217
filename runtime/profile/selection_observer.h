// A device that looks at the sets that another one's selections take, and passes everything on.
// Nothing is charged for it: on devices that run host code the selection is the same operation with
// the same work; elsewhere a stream of its own copies sets to the host beside the step's work.
#pragma once

#include <vector>

#include "offload/wrapped_device.h"
#include "runtime/trace/set_overlap.h"

namespace fasa {

class SelectionObserver final : public WrappedDevice {
 public:
  // `inner` outlives this.
  explicit SelectionObserver(Device& inner);

  // Since the last call, by layer. Waits for what is copied.
  std::vector<OverlapCount> take_overlap();

 private:
  // A layer's sets on the host: sequences, sizes, sets.
  struct Copied {
    Buffer memory;
    SelectParams params;  // of the last selection
    bool fresh = false;   // not observed yet
  };
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override;
  void copy_sets(const SelectParams& params, StreamView stream);
  void observe_copied();

  SetOverlap overlap_;
  std::vector<Copied> copied_;  // by layer; without host code
  Stream copies_;
  Event selected_;
  Event read_;  // the sets may be written again
};

}  // namespace fasa
