// A stepped device that drops one wait of a stream, to find out whether a test detects the missing
// wait.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "offload/wrapped_device.h"
#include "tests/support/stepped_device.h"

namespace fasa {

class WaitDropper final : public WrappedDevice {
 public:
  explicit WaitDropper(std::unique_ptr<SteppedDevice> stepped)
      : WrappedDevice(*stepped), stepped_(std::move(stepped)) {}

  // Starts counting; the n-th wait (1 = the next) is dropped, 0 = none.
  void drop(size_t nth) {
    waits_.clear();
    nth_ = nth;
  }
  // Descriptions of the waits counted so far, in order. Waits for events that were never recorded
  // do nothing and are not counted.
  const std::vector<std::string>& waits() const { return waits_; }
  SteppedDevice& stepped() { return *stepped_; }

 private:
  void do_wait(StreamView stream, EventView event, OperationTag tag) override {
    const std::string name = stepped_->wait_name(stream, event);
    if (name.empty()) return;
    waits_.push_back(name);
    if (waits_.size() != nth_) inner_.wait(stream, event, tag);
  }

  std::unique_ptr<SteppedDevice> stepped_;
  size_t nth_ = 0;
  std::vector<std::string> waits_;
};

}  // namespace fasa
