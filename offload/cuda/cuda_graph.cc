#include "offload/cuda/cuda_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "offload/cuda/cuda_stream.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

thread_local CudaCapture* t_capture = nullptr;

uint64_t next_number() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

// Compares journals, which live as long as the device; an event's stream may be gone.
bool recorded_on(const CudaEvent& event, const CudaStream& stream) {
  return event.journal == &stream.journal();
}

}  // namespace

CudaMark::CudaMark(CudaShared& shared, CudaJournal& journal) : shared_(shared), journal_(journal) {
  shared.check(shared.calls.create_event(&native_), {"cudaEventCreate"});
}

CudaMark::~CudaMark() {
  if (shared_.calls.destroy_event(native_) != cuda_status::kSuccess)
    shared_.calls.take_last_error();
}

void CudaMark::place(void* stream) {
  shared_.check(shared_.calls.record(native_, stream), {"cudaEventRecord"});
  number_ = journal_.enqueued();
}

CudaCapture::CudaCapture(CudaShared& shared, CudaStream& origin, std::vector<CudaStream*> others)
    : shared_(shared), origin_(origin), others_(std::move(others)), number_(next_number()) {
  for (CudaStream* const other : others_) other->join(origin_);
  origin_.place_mark();
  for (CudaStream* const other : others_) other->follow(*origin_.mark());
  mark_streams();
  const CudaStatus begun = shared_.calls.begin_capture(origin_.native());
  if (begun != cuda_status::kSuccess) unmark_streams();
  shared_.check(begun, {"cudaStreamBeginCapture"});
  open_ = true;
  t_capture = this;
  try {
    for (CudaStream* const other : others_) origin_.join(*other);
  } catch (...) {
    end();
    throw;
  }
}

CudaCapture::~CudaCapture() {
  end();
  for (const std::function<void()>& work : deferred_) work();
}

void CudaCapture::mark_streams() {
  const std::lock_guard lock(shared_.streams_mutex);
  shared_.captured.emplace(origin_.native(), origin_.mark());
  for (const CudaStream* other : others_) {
    shared_.captured.emplace(other->native(), origin_.mark());
  }
}

void CudaCapture::unmark_streams() {
  const std::lock_guard lock(shared_.streams_mutex);
  shared_.captured.erase(origin_.native());
  for (const CudaStream* other : others_) shared_.captured.erase(other->native());
}

void CudaCapture::end() noexcept {
  if (!std::exchange(open_, false)) return;
  t_capture = nullptr;
  void* graph = nullptr;
  shared_.calls.end_capture(origin_.native(), &graph);
  unmark_streams();
  if (graph != nullptr) shared_.calls.destroy_graph(graph);
  shared_.calls.take_last_error();
}

void* CudaCapture::finish() {
  for (CudaStream* const other : others_) other->join(origin_);
  open_ = false;
  t_capture = nullptr;
  void* graph = nullptr;
  const CudaStatus ended = shared_.calls.end_capture(origin_.native(), &graph);
  unmark_streams();
  shared_.check(ended, {"cudaStreamEndCapture"});
  return graph;
}

CudaCapture* CudaCapture::current() { return t_capture; }

void CudaCapture::forbid(const char* call) {
  if (t_capture == nullptr) [[likely]]
    return;
  throw UsageError(fmt::format(
      "{} is not possible while a graph is being recorded; allowed: work on the graph's streams",
      call));
}

void CudaCapture::require(const CudaStream& stream) const {
  if (&stream == &origin_ || std::find(others_.begin(), others_.end(), &stream) != others_.end())
    return;
  throw UsageError(
      fmt::format("work on the stream '{}' is not possible while a graph of other streams is being "
                  "recorded; allowed: streams of the graph, such as {}",
                  stream.journal().stream(), origin_.journal().stream()));
}

// Before each launch, a graph's streams join at a common point. Events of other streams are waited
// for then, including those that are not recorded yet.
void CudaCapture::await(const CudaEvent& event) {
  const auto is_of = [&](const CudaStream* stream) { return recorded_on(event, *stream); };
  if (is_of(&origin_) || std::any_of(others_.begin(), others_.end(), is_of)) return;
  if (std::find(awaited_.begin(), awaited_.end(), &event) == awaited_.end())
    awaited_.push_back(&event);
}

const std::shared_ptr<CudaMark>& CudaCapture::mark() const { return origin_.mark(); }

CudaGraph::CudaGraph(CudaCapture& capture, CudaMemory& memory, const char* name)
    : shared_(capture.shared_),
      memory_(memory),
      name_(name),
      origin_(capture.origin_),
      mark_(capture.mark()),
      others_(capture.others_),
      awaited_(capture.awaited_),
      traffic_(capture.traffic) {
  void* const graph = capture.finish();
  try {
    instantiate(graph);
  } catch (...) {
    shared_.calls.destroy_graph(graph);
    throw;
  }
  if (shared_.calls.destroy_graph(graph) != cuda_status::kSuccess) shared_.calls.take_last_error();
}

// The driver does not report an instance's memory, so the decrease of free memory is counted. Other
// processes may contribute to it; it is less than the true size only if the driver reused memory.
void CudaGraph::instantiate(void* graph) {
  const uint64_t before = memory_.free_bytes();
  shared_.check(shared_.calls.instantiate_graph(&instance_, graph, origin_.native()),
                {"cudaGraphInstantiate"});
  const uint64_t taken = before - std::min(before, memory_.free_bytes());
  try {
    memory_.count(taken, "instantiating the CUDA graph of a step");
  } catch (...) {
    shared_.calls.destroy_graph_instance(instance_);
    throw;
  }
  bytes_ = taken;
}

CudaGraph::~CudaGraph() {
  CudaCalls& calls = shared_.calls;
  if (calls.synchronize_event(mark_->native()) != cuda_status::kSuccess) calls.take_last_error();
  if (calls.destroy_graph_instance(instance_) != cuda_status::kSuccess) calls.take_last_error();
  memory_.discount(bytes_);
  memory_.sample();
}

bool CudaGraph::launch() {
  CudaCapture::forbid("launching a graph");
  if (origin_.mark() != mark_) return false;
  const CudaMark& mark = *mark_;
  for (CudaStream* const other : others_) {
    if (!other->idle_since(mark)) other->join(origin_);
  }
  for (const CudaEvent* const event : awaited_) {
    if (event->mark.get() != &mark) origin_.wait(*event, {});
  }
  origin_.run({name_}, {}, {},
              [&] { return shared_.calls.launch_graph(instance_, origin_.native()); });
  origin_.place_mark();
  for (CudaStream* const other : others_) other->follow(mark);
  return true;
}

}  // namespace fasa
