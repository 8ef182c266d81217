// A device that shows the token sets of decode steps and passes everything on to the cpu device.
#pragma once

#include <functional>

#include "offload/wrapped_device.h"

namespace fasa {

class SetObserver final : public WrappedDevice {
 public:
  // `inner`: a cpu device, where work is done on return, so that sets are complete. It outlives
  // this. Throws UsageError for another.
  explicit SetObserver(Device& inner);

  // Called with the sets of every decode step's layer when their rows are looked up, whatever chose
  // them; not for layers that attend to everything. Null: none is kept.
  using Observer = std::function<void(const ResolveParams&)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override;

  Observer observer_;
};

}  // namespace fasa
