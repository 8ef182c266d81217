// A decorator with kernels of its own. A launcher is a plain function that gets a stream alone, so
// the streams of such a device lead back to it.
#pragma once

#include "offload/wrapped_device.h"

namespace fasa {

class LanedDevice : public WrappedDevice {
 public:
  explicit LanedDevice(Device& inner);

  Stream create_stream(StreamPriority priority, std::string_view name) override;
  // The inner device's, on the lanes' streams.
  const ModelKernelTable* model_kernels() const override {
    return inner_.model_kernels() == nullptr ? nullptr : &model_table_;
  }

 protected:
  // Throws UsageError for a stream that this device did not make.
  StreamView within(StreamView stream) const override { return lane_of(stream).stream.view(); }
  void destroy_stream(StreamView stream) noexcept override;

  // For launchers. `Decorator` is the class whose table the launcher stands in.
  template <typename Decorator>
  static Decorator& device_of(StreamView stream) {
    return static_cast<Decorator&>(lane_of(stream).device);
  }
  // The inner device's kernel.
  template <auto kKernel, typename Params>
  static void pass(const Params& params, StreamView stream) {
    const Lane& lane = lane_of(stream);
    (lane.device.inner_.kernels().*kKernel)(params, lane.stream.view());
  }
  // All of the inner device's: a decorator replaces those that it is about.
  static KernelTable passed_kernels();

 private:
  template <auto kKernel, typename Params>
  static void pass_model(const Params& params, StreamView stream) {
    const Lane& lane = lane_of(stream);
    (lane.device.inner_.model_kernels()->*kKernel)(params, lane.stream.view());
  }
  struct Lane {  // what a StreamView of this device points to
    LanedDevice& device;
    Stream stream;  // the inner device's
  };
  static Lane& lane_of(StreamView stream);

  ModelKernelTable model_table_{};
};

}  // namespace fasa
