// A stepped device that leaves out one wait of a stream: what the pipeline does without it tells
// whether a test would notice.
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

  // Counts from now on; the n-th wait (1 = the next) is left out, 0 = none.
  void drop(size_t nth) {
    waits_.clear();
    nth_ = nth;
  }
  // What the waits counted so far were for, in order. Those for events that were never recorded,
  // which wait for nothing, are not counted.
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
