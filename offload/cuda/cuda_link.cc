#include "offload/cuda/cuda_link.h"

#include <algorithm>
#include <limits>

namespace fasa {
namespace {

// Memory and events of a measurement, freed on every path.
class Probe {
 public:
  Probe(CudaShared& shared, PinnedArena& pinned, void* pool, void* stream)
      : shared_(shared), pinned_(pinned), pool_(pool), stream_(stream) {}
  Probe(const Probe&) = delete;  // gives back once
  Probe& operator=(const Probe&) = delete;
  ~Probe() {
    CudaCalls& calls = shared_.calls;
    for (void* event : {before_, after_}) {
      if (event != nullptr) calls.destroy_event(event);
    }
    if (device_ != nullptr) calls.free(device_, pool_, stream_);
    calls.synchronize_stream(stream_);
    if (host_ != nullptr) pinned_.free(host_, kLinkProbeBytes);
    calls.take_last_error();
  }

  void open() {
    CudaCalls& calls = shared_.calls;
    host_ = pinned_.allocate(kLinkProbeBytes, "link measurement");
    shared_.check(calls.allocate(&device_, kLinkProbeBytes, pool_, stream_),
                  {"cudaMallocFromPoolAsync", kLinkProbeBytes});
    shared_.check(calls.create_event(&before_), {"cudaEventCreate"});
    shared_.check(calls.create_event(&after_), {"cudaEventCreate"});
  }

  // The better of two measurements: the first warms the link up.
  double rate(CopyKind kind) {
    const bool to_device = kind == CopyKind::kHostToDevice;
    double best = 0;
    for (int i = 0; i < 2; ++i) best = std::max(best, run(kind, to_device));
    return best;
  }

 private:
  double run(CopyKind kind, bool to_device) {
    CudaCalls& calls = shared_.calls;
    void* const destination = to_device ? device_ : host_;
    const void* const source = to_device ? static_cast<void*>(host_) : device_;
    shared_.check(calls.record(before_, stream_), {"cudaEventRecord"});
    shared_.check(calls.copy(destination, source, kLinkProbeBytes, kind, stream_),
                  {"cudaMemcpyAsync", kLinkProbeBytes});
    shared_.check(calls.record(after_, stream_), {"cudaEventRecord"});
    shared_.check(calls.synchronize_event(after_), {"cudaEventSynchronize"});
    float milliseconds = 0;
    shared_.check(calls.elapsed(&milliseconds, before_, after_), {"cudaEventElapsedTime"});
    const double seconds = std::max(static_cast<double>(milliseconds) * 1e-3, 1e-6);
    return static_cast<double>(kLinkProbeBytes) / seconds;
  }

  CudaShared& shared_;
  PinnedArena& pinned_;
  void* const pool_;
  void* const stream_;
  std::byte* host_ = nullptr;
  void* device_ = nullptr;
  void* before_ = nullptr;
  void* after_ = nullptr;
};

}  // namespace

CudaLinkRates measure_link(CudaShared& shared, PinnedArena& pinned, void* pool, void* stream) {
  Probe probe(shared, pinned, pool, stream);
  probe.open();
  return {.h2d = probe.rate(CopyKind::kHostToDevice), .d2h = probe.rate(CopyKind::kDeviceToHost)};
}

}  // namespace fasa
