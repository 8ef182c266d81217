// Work on several streams of one GPU, captured once and launched any number of times.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "offload/cuda/cuda_memory.h"
#include "offload/cuda/cuda_shared.h"

namespace fasa {

class CudaStream;
struct CudaEvent;

// A position in a stream: behind its last launch of a graph, or where the first capture began.
// Stands in for events recorded inside a graph, which the runtime cannot query.
class CudaMark {
 public:
  CudaMark(CudaShared& shared, CudaJournal& journal);
  CudaMark(const CudaMark&) = delete;  // owns its event
  CudaMark& operator=(const CudaMark&) = delete;
  ~CudaMark();

  void place(void* stream);  // after all that is in the stream
  void* native() const { return native_; }
  CudaJournal& journal() const { return journal_; }
  uint64_t number() const { return number_; }

 private:
  CudaShared& shared_;
  CudaJournal& journal_;
  void* native_ = nullptr;
  uint64_t number_ = 0;  // operation number in the journal
};

// Bytes and copies over the link.
struct CudaTraffic {
  uint64_t h2d_bytes = 0;
  uint64_t h2d_operations = 0;
  uint64_t d2h_bytes = 0;
  uint64_t d2h_operations = 0;
};

// A capture in progress, owned by the thread that began it.
class CudaCapture {
 public:
  // Orders all previous work of the streams before anything that follows in any of them; this also
  // holds if the capture is abandoned. Throws DeviceError.
  CudaCapture(CudaShared& shared, CudaStream& origin, std::vector<CudaStream*> others);
  CudaCapture(const CudaCapture&) = delete;  // the thread knows it
  CudaCapture& operator=(const CudaCapture&) = delete;
  ~CudaCapture();  // abandons an unfinished capture

  void* finish();  // the graph, a cudaGraph_t

  // The calling thread's capture, or null.
  static CudaCapture* current();
  // Throws UsageError during a capture on this thread: `call` is not allowed in a graph.
  static void forbid(const char* call);
  // Throws UsageError for a stream outside the graph.
  void require(const CudaStream& stream) const;
  // Makes the graph wait for an event recorded outside this capture.
  void await(const CudaEvent& event);

  uint64_t number() const { return number_; }  // unique per capture, never 0
  const std::shared_ptr<CudaMark>& mark() const;
  // Runs `work` once the capture has ended, in any way.
  void defer(std::function<void()> work) { deferred_.push_back(std::move(work)); }
  CudaTraffic traffic;

 private:
  friend class CudaGraph;
  void end() noexcept;
  void mark_streams();  // as captured
  void unmark_streams();

  CudaShared& shared_;
  CudaStream& origin_;
  const std::vector<CudaStream*> others_;
  std::vector<const CudaEvent*> awaited_;
  std::vector<std::function<void()>> deferred_;
  const uint64_t number_;
  bool open_ = false;
};

class CudaGraph {
 public:
  // Instantiates a complete capture. `name` outlives the graph. Throws DeviceError or BudgetError.
  CudaGraph(CudaCapture& capture, CudaMemory& memory, const char* name);
  CudaGraph(const CudaGraph&) = delete;  // owns its instance
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph();  // waits for its launches

  bool launch();  // see Device
  uint64_t bytes() const { return bytes_; }
  const CudaTraffic& traffic() const { return traffic_; }

 private:
  void instantiate(void* graph);

  CudaShared& shared_;
  CudaMemory& memory_;
  const char* const name_;
  CudaStream& origin_;
  const std::shared_ptr<CudaMark> mark_;  // of the origin stream
  const std::vector<CudaStream*> others_;
  const std::vector<const CudaEvent*> awaited_;
  const CudaTraffic traffic_;
  void* instance_ = nullptr;
  uint64_t bytes_ = 0;  // GPU memory
};

}  // namespace fasa
