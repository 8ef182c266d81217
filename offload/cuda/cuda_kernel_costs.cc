#include "offload/cuda/cuda_kernel_costs.h"

#include <fmt/format.h>

#include "offload/cuda/kernel_probe.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa {
namespace {

constexpr int kWarmups = 2;  // the first call of a kernel loads its code
constexpr int kRuns = 8;

// Memory and events of a measurement, freed on every path.
class Times {
 public:
  Times(CudaShared& shared, void* pool, void* stream)
      : shared_(shared), pool_(pool), stream_(stream) {}
  Times(const Times&) = delete;  // frees once
  Times& operator=(const Times&) = delete;
  ~Times() {
    CudaCalls& calls = shared_.calls;
    calls.synchronize_stream(stream_);
    for (void* event : {before_, after_}) {
      if (event != nullptr) calls.destroy_event(event);
    }
    if (data_ != nullptr) calls.free(data_, pool_, stream_);
    calls.synchronize_stream(stream_);
    calls.take_last_error();
  }

  void open() {
    CudaCalls& calls = shared_.calls;
    shared_.check(calls.allocate(&data_, probe_.bytes(), pool_, stream_),
                  {"cudaMallocFromPoolAsync", probe_.bytes()});
    shared_.check(calls.create_event(&before_), {"cudaEventCreate"});
    shared_.check(calls.create_event(&after_), {"cudaEventCreate"});
    const std::vector<std::byte> image = probe_.image(base());
    shared_.check(calls.copy(data_, image.data(), image.size(), CopyKind::kHostToDevice, stream_),
                  {"cudaMemcpyAsync", image.size()});
    shared_.check(calls.synchronize_stream(stream_), {"cudaStreamSynchronize"});
  }

  // Seconds of a call, the mean of calls that follow each other.
  double select(int set) {
    return mean([&](int) { return KernelCall(probe_.select(base(), set)); });
  }
  double resolve(int slots) {
    return mean([&](int run) { return KernelCall(probe_.resolve(base(), slots, run)); });
  }

 private:
  std::byte* base() const { return static_cast<std::byte*>(data_); }

  template <typename CallOf>
  double mean(const CallOf& call_of) {
    CudaCalls& calls = shared_.calls;
    for (int run = 0; run < kWarmups + kRuns; ++run) {
      if (run == kWarmups) {
        shared_.check(calls.record(before_, stream_), {"cudaEventRecord"});
      }
      shared_.launch(call_of(run), stream_);
      shared_.check(calls.take_last_error(), {"kernel"});
    }
    shared_.check(calls.record(after_, stream_), {"cudaEventRecord"});
    shared_.check(calls.synchronize_event(after_), {"cudaEventSynchronize"});
    float milliseconds = 0;
    shared_.check(calls.elapsed(&milliseconds, before_, after_), {"cudaEventElapsedTime"});
    return static_cast<double>(milliseconds) * 1e-3 / kRuns;
  }

  CudaShared& shared_;
  void* const pool_;
  void* const stream_;
  KernelProbe probe_;
  void* data_ = nullptr;
  void* before_ = nullptr;
  void* after_ = nullptr;
};

// `value`, or the default if it cannot be right.
double plausible(double value, double usual) {
  return value > usual / 10 && value < usual * 10 ? value : usual;
}

KernelCosts measure(Times& times) {
  using Probe = KernelProbe;
  const KernelCosts usual;
  const double launch = plausible(times.resolve(0), usual.launch);
  KernelCosts costs = KernelCosts::with_launch(launch);
  const double few = times.select(Probe::kFewTokens);
  const double many = times.select(Probe::kManyTokens);
  const double each = (many - few) / (Probe::kManyTokens - Probe::kFewTokens);
  costs.ranked_token = plausible(each, usual.ranked_token);
  costs.low_bit_token = usual.low_bit_token * costs.ranked_token / usual.ranked_token;
  costs.select = plausible(few - Probe::kFewTokens * costs.ranked_token, usual.select);
  const double small = times.resolve(Probe::kFewSlots);
  const double large = times.resolve(Probe::kManySlots);
  const double slot = (large - small) / (Probe::kManySlots - Probe::kFewSlots);
  costs.hot_slot = plausible(slot, usual.hot_slot);
  costs.resolve = plausible(small - Probe::kFewSlots * costs.hot_slot, usual.resolve);
  return costs;
}

}  // namespace

KernelCosts measure_kernels(CudaShared& shared, void* pool, void* stream) {
  try {
    Times times(shared, pool, stream);
    times.open();
    return measure(times);
  } catch (const DeviceError& error) {
    shared.require_context();
    log_warning(fmt::format("kernels could not be timed, plans take defaults: {}", error.what()));
    return {};
  }
}

}  // namespace fasa
