// A device that reports the token sets of decode steps and forwards all work to the cpu device.
#pragma once

#include <functional>

#include "offload/wrapped_device.h"

namespace fasa {

class SetObserver final : public WrappedDevice {
 public:
  // `inner`: a cpu device, whose work is complete on return, so that sets are complete. It must
  // outlive this. Throws UsageError for another device.
  explicit SetObserver(Device& inner);

  // Called with the sets of every layer of a decode step when their rows are resolved, for any
  // selection; not for layers with full attention. Null: no callback.
  using Observer = std::function<void(const ResolveParams&)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 private:
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override;

  Observer observer_;
};

}  // namespace fasa
