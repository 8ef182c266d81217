// Captures and graphs of the fake CUDA runtime.
#include <algorithm>
#include <utility>

#include "tests/support/fake_cuda_parts.h"

namespace fasa {

bool FakeCuda::Capture::joined() const {
  std::vector<char> before(graph.nodes.size(), 0);
  std::vector<size_t> open = ends.at(origin);
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (std::exchange(before[node], 1) != 0) continue;
    open.insert(open.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return std::all_of(before.begin(), before.end(), [](char reached) { return reached != 0; });
}

FakeCuda::Capture* FakeCuda::capture_here() {
  return capture_ != nullptr && capture_->thread == std::this_thread::get_id() ? capture_.get()
                                                                               : nullptr;
}

CudaStatus FakeCuda::break_capture(Capture& capture, CudaStatus status) {
  capture.broken = true;
  return fail(status);
}

bool FakeCuda::captured(void* event) { return static_cast<FakeEvent*>(event)->capture != nullptr; }

CudaStatus FakeCuda::outside_capture(const char* name) {
  if (const CudaStatus status = enter(name)) return status;
  Capture* const capture = capture_here();
  return capture == nullptr ? cuda_status::kSuccess
                            : break_capture(*capture, cuda_status::kCaptureUnsupported);
}

CudaStatus FakeCuda::enter_stream(const char* name, void* stream) {
  if (const CudaStatus status = enter(name)) return status;
  if (stream == nullptr) {  // the legacy stream waits for all others
    Capture* const capture = capture_here();
    return capture == nullptr ? fail(cuda_status::kInvalidValue)
                              : break_capture(*capture, cuda_status::kCaptureImplicit);
  }
  if (gone(stream)) return fail(cuda_status::kInvalidHandle);
  if (stream == legacy_stream()) {
    Capture* const here = capture_here();
    return here == nullptr ? cuda_status::kSuccess
                           : break_capture(*here, cuda_status::kCaptureImplicit);
  }
  const auto& capture = stream_of(stream).capture;
  const bool broken = capture != nullptr && capture->broken;
  return broken ? fail(cuda_status::kCaptureInvalidated) : cuda_status::kSuccess;
}

CudaStatus FakeCuda::wait(void* stream, void* event) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter_stream("wait", stream)) return status;
  FakeStream& waiting = stream_of(stream);
  const FakeEvent& awaited = *static_cast<FakeEvent*>(event);
  if (awaited.capture == nullptr) {
    if (waiting.capture != nullptr) {
      return break_capture(*waiting.capture, cuda_status::kCaptureIsolation);
    }
    if (awaited.latest != nullptr) waiting.queue.push_back({nullptr, nullptr, awaited.latest});
    return cuda_status::kSuccess;
  }
  if (awaited.capture != capture_) return fail(cuda_status::kCapturedEvent);
  if (capture_->broken) return fail(cuda_status::kCaptureInvalidated);
  waiting.capture = capture_;  // a stream joins a capture by waiting for one of its events
  std::vector<size_t>& ends = capture_->ends[&waiting];
  for (const size_t node : awaited.nodes) {
    if (std::find(ends.begin(), ends.end(), node) == ends.end()) ends.push_back(node);
  }
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::begin_capture(void* stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter_stream("begin_capture", stream)) return status;
  if (capture_ != nullptr || stream == legacy_stream()) {
    return fail(cuda_status::kCaptureUnsupported);
  }
  capture_ = std::make_shared<Capture>(
      Capture{&stream_of(stream), std::this_thread::get_id(), {}, {}, false});
  capture_->ends[capture_->origin];
  stream_of(stream).capture = capture_;
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::end_capture(void* stream, void** graph) {
  const std::lock_guard lock(mutex_);
  const CudaStatus entered = enter("end_capture");
  if (capture_ == nullptr || capture_->origin != &stream_of(stream)) {
    return fail(cuda_status::kCaptureUnmatched);
  }
  const std::shared_ptr<Capture> ended = std::exchange(capture_, nullptr);
  for (const auto& [member, ends] : ended->ends) member->capture = nullptr;
  *graph = nullptr;
  if (entered != cuda_status::kSuccess) return entered;
  if (ended->broken) return fail(cuda_status::kCaptureInvalidated);
  if (!ended->joined()) return fail(cuda_status::kCaptureUnjoined);
  *graph = new FakeGraph(std::move(ended->graph));
  ++live_graphs;
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::destroy_graph(void* graph) {
  const std::lock_guard lock(mutex_);
  delete static_cast<FakeGraph*>(graph);
  --live_graphs;
  return enter("destroy_graph");
}

CudaStatus FakeCuda::instantiate_graph(void** instance, void* graph, void*) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = outside_capture("instantiate_graph")) return status;
  const auto& source = *static_cast<FakeGraph*>(graph);
  const uint64_t bytes = source.nodes.size() * graph_node_bytes;
  if (bytes > left()) return fail(cuda_status::kOutOfMemory);
  auto made = std::make_unique<FakeGraph>(source);
  made->bytes = bytes;
  graph_bytes_ += bytes;
  ++live_graphs;
  *instance = made.release();
  return cuda_status::kSuccess;
}

CudaStatus FakeCuda::destroy_graph_instance(void* instance) {
  const std::lock_guard lock(mutex_);
  const std::unique_ptr<FakeGraph> graph(static_cast<FakeGraph*>(instance));
  graph_bytes_ -= graph->bytes;
  --live_graphs;
  return enter("destroy_graph_instance");
}

std::vector<size_t> FakeCuda::launch_order(const FakeGraph& graph) {
  std::vector<size_t> order;
  std::vector<size_t> missing;  // for each node, the number of nodes that it still waits for
  std::vector<std::vector<size_t>> next(graph.nodes.size());
  std::vector<size_t> ready;
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    missing.push_back(graph.nodes[node].after.size());
    for (const size_t before : graph.nodes[node].after) next[before].push_back(node);
    if (missing.back() == 0) ready.push_back(node);
  }
  while (!ready.empty()) {
    auto chosen = std::min_element(ready.begin(), ready.end());
    if (graph_order == GraphOrder::kLastComeFirst) {
      chosen = std::max_element(ready.begin(), ready.end());
    } else if (graph_order == GraphOrder::kShuffled) {
      shuffles_ = shuffles_ * 6364136223846793005u + 1442695040888963407u;
      chosen = ready.begin() + static_cast<int64_t>((shuffles_ >> 33) % ready.size());
    }
    order.push_back(*chosen);
    ready.erase(chosen);
    for (const size_t node : next[order.back()]) {
      if (--missing[node] == 0) ready.push_back(node);
    }
  }
  return order;
}

CudaStatus FakeCuda::launch_graph(void* instance, void* stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = enter_stream("launch_graph", stream)) return status;
  FakeStream& target = stream_of(stream);
  if (target.capture != nullptr) {
    return break_capture(*target.capture, cuda_status::kCaptureUnsupported);
  }
  const auto& graph = *static_cast<FakeGraph*>(instance);
  for (const size_t node : launch_order(graph)) {
    target.queue.push_back({graph.nodes[node].work, nullptr, nullptr});
  }
  return cuda_status::kSuccess;
}

}  // namespace fasa
