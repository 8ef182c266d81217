#include "offload/cuda/cuda_kernel_costs.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/cuda/launch_error.h"
#include "offload/cuda/kernel_probe.h"

namespace fasa {
namespace {

using Probe = KernelProbe;

constexpr int kWarmups = 2;  // the first call of a kernel loads its code, which no graph may do
constexpr int kRuns = 8;     // calls of a graph
// Rounds over all graphs, 30 ms or more: the clocks of an idle GPU rise meanwhile.
constexpr int kRounds = 32;

// The measured calls.
enum { kLaunch, kSelectFew, kSelectMany, kResolveFew, kResolveMany, kCalls };
using Seconds = std::array<double, kCalls>;

// Memory, events and graphs of a measurement, freed on every path. A graph has calls of one kind
// that follow each other, as in a decode step: launched one by one, they would show how fast the
// host launches.
class Times {
 public:
  Times(CudaShared& shared, void* pool, void* stream)
      : shared_(shared), calls_(shared.calls), pool_(pool), stream_(stream) {}
  Times(const Times&) = delete;  // frees once
  Times& operator=(const Times&) = delete;
  ~Times() {
    void* unfinished = nullptr;
    if (capturing_) calls_.end_capture(stream_, &unfinished);
    if (unfinished != nullptr) calls_.destroy_graph(unfinished);
    calls_.synchronize_stream(stream_);
    for (void* graph : graphs_) {
      if (graph != nullptr) calls_.destroy_graph_instance(graph);
    }
    for (void* event : {before_, after_}) {
      if (event != nullptr) calls_.destroy_event(event);
    }
    if (data_ != nullptr) calls_.free(data_, pool_, stream_);
    calls_.synchronize_stream(stream_);
    calls_.take_last_error();
  }

  void open() {
    check(calls_.allocate(&data_, probe_.bytes(), pool_, stream_),
          {"cudaMallocFromPoolAsync", probe_.bytes()});
    check(calls_.create_event(&before_), {"cudaEventCreate"});
    check(calls_.create_event(&after_), {"cudaEventCreate"});
    const std::vector<std::byte> image = probe_.image(base());
    check(calls_.copy(data_, image.data(), image.size(), CopyKind::kHostToDevice, stream_),
          {"cudaMemcpyAsync", image.size()});
    for (int kind = 0; kind < kCalls; ++kind) capture(kind);
  }

  // Seconds of each call: the least of all rounds.
  Seconds least() {
    Seconds least;
    least.fill(std::numeric_limits<double>::infinity());
    for (int round = 0; round < kRounds; ++round) {
      for (size_t kind = 0; kind < kCalls; ++kind) {
        least[kind] = std::min(least[kind], seconds(graphs_[kind]));
      }
    }
    return least;
  }

 private:
  std::byte* base() const { return static_cast<std::byte*>(data_); }
  void check(CudaStatus status, const CudaCall& call) { shared_.check(status, call); }

  KernelCall call_of(int kind, int run) const {
    if (kind == kSelectFew) return probe_.select(base(), Probe::kFewTokens);
    if (kind == kSelectMany) return probe_.select(base(), Probe::kManyTokens);
    const int slots = kind == kLaunch       ? 0
                      : kind == kResolveFew ? Probe::kFewSlots
                                            : Probe::kManySlots;
    return probe_.resolve(base(), slots, run);
  }

  // The launcher takes the last error: only its exception reveals a lost context.
  void launch(const KernelCall& call) {
    try {
      shared_.launch(call, stream_);
    } catch (const cuda::LaunchError& error) {
      check(error.status(), {kernel_name(call)});
      throw;
    }
    check(calls_.take_last_error(), {kernel_name(call)});
  }

  void capture(int kind) {
    for (int run = 0; run < kWarmups; ++run) launch(call_of(kind, run));
    check(calls_.synchronize_stream(stream_), {kernel_name(call_of(kind, 0))});
    check(calls_.begin_capture(stream_), {"cudaStreamBeginCapture"});
    capturing_ = true;
    for (int run = 0; run < kRuns; ++run) launch(call_of(kind, run));
    void* graph = nullptr;
    capturing_ = false;
    check(calls_.end_capture(stream_, &graph), {"cudaStreamEndCapture"});
    const CudaStatus status =
        calls_.instantiate_graph(&graphs_[static_cast<size_t>(kind)], graph, stream_);
    calls_.destroy_graph(graph);
    check(status, {"cudaGraphInstantiate"});
  }

  // Behind a launch that is not timed, during which the host enqueues the timed one.
  double seconds(void* graph) {
    for (void* event : {static_cast<void*>(nullptr), before_}) {
      const std::span<std::byte> tables = probe_.hot_tables(base());
      check(calls_.fill(tables.data(), Probe::kEmptySlots, tables.size(), stream_),
            {"cudaMemsetAsync", tables.size()});
      if (event != nullptr) check(calls_.record(event, stream_), {"cudaEventRecord"});
      check(calls_.launch_graph(graph, stream_), {"cudaGraphLaunch"});
    }
    check(calls_.record(after_, stream_), {"cudaEventRecord"});
    check(calls_.synchronize_event(after_), {"cudaEventSynchronize"});
    float milliseconds = 0;
    check(calls_.elapsed(&milliseconds, before_, after_), {"cudaEventElapsedTime"});
    return static_cast<double>(milliseconds) * 1e-3 / kRuns;
  }

  CudaShared& shared_;
  CudaCalls& calls_;
  void* const pool_;
  void* const stream_;
  KernelProbe probe_;
  void* data_ = nullptr;
  void* before_ = nullptr;
  void* after_ = nullptr;
  std::array<void*, kCalls> graphs_{};
  bool capturing_ = false;
};

// `value`, or the default if it cannot be right.
double plausible(double value, double usual) {
  return value > usual / 10 && value < usual * 10 ? value : usual;
}

KernelCosts costs_of(const Seconds& seconds) {
  const KernelCosts usual;
  KernelCosts costs;
  costs.launch = plausible(seconds[kLaunch], usual.launch);
  costs.attend = usual.attend * costs.launch / usual.launch;
  const double few = seconds[kSelectFew];
  const double each = (seconds[kSelectMany] - few) / (Probe::kManyTokens - Probe::kFewTokens);
  costs.ranked_token = plausible(each, usual.ranked_token);
  costs.low_bit_token = usual.low_bit_token * costs.ranked_token / usual.ranked_token;
  costs.select = plausible(few - Probe::kFewTokens * costs.ranked_token, usual.select);
  const double small = seconds[kResolveFew];
  const double slot = (seconds[kResolveMany] - small) / (Probe::kManySlots - Probe::kFewSlots);
  costs.hot_slot = plausible(slot, usual.hot_slot);
  costs.resolve = plausible(small - Probe::kFewSlots * costs.hot_slot, usual.resolve);
  return costs;
}

}  // namespace

KernelCosts measure_kernels(CudaShared& shared, void* pool, void* stream) {
  Times times(shared, pool, stream);
  times.open();
  return costs_of(times.least());
}

}  // namespace fasa
