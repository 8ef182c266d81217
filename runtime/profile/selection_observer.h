// A device that observes the selected sets of another one and forwards all work to it. Costs
// nothing: on devices that run host code the selection is the same operation with the same work; on
// others a separate stream copies the sets to the host in parallel with the step.
#pragma once

#include <vector>

#include "offload/wrapped_device.h"
#include "runtime/trace/set_overlap.h"

namespace fasa {

class SelectionObserver final : public WrappedDevice {
 public:
  // `inner` must outlive it.
  explicit SelectionObserver(Device& inner);

  // Overlap since the last call, by layer. Waits for the copies.
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
  Event read_;  // the sets may be overwritten after it
};

}  // namespace fasa
