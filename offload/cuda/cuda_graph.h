// Work of several streams of one GPU that is captured once and launched any number of times.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "offload/cuda/cuda_memory.h"
#include "offload/cuda/cuda_shared.h"

namespace fasa {

class CudaStream;
struct CudaEvent;

// A place in a stream behind its last launch of a graph, or where the first capture began: what
// events stand for that were recorded inside a graph, for the runtime knows nothing of these.
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
  uint64_t number_ = 0;  // of the journal
};

// Bytes and copies over the link.
struct CudaTraffic {
  uint64_t h2d_bytes = 0;
  uint64_t h2d_operations = 0;
  uint64_t d2h_bytes = 0;
  uint64_t d2h_operations = 0;
};

// A capture under way, of the thread that began it.
class CudaCapture {
 public:
  // All that the streams were given so far comes before whatever follows in any of them: so it
  // stays right where the capture is given up. Throws DeviceError.
  CudaCapture(CudaShared& shared, CudaStream& origin, std::vector<CudaStream*> others);
  CudaCapture(const CudaCapture&) = delete;  // the thread knows it
  CudaCapture& operator=(const CudaCapture&) = delete;
  ~CudaCapture();  // gives it up where it was not finished

  void* finish();  // the graph, a cudaGraph_t

  // This thread's, or null.
  static CudaCapture* current();
  // Throws UsageError while this thread captures: `call` has no place in a graph.
  static void forbid(const char* call);
  // Throws UsageError for a stream that takes no part.
  void require(const CudaStream& stream) const;
  // The event was not recorded in this capture.
  void await(const CudaEvent& event);

  uint64_t number() const { return number_; }  // of this capture, never 0
  const std::shared_ptr<CudaMark>& mark() const;
  CudaTraffic traffic;

 private:
  friend class CudaGraph;
  void end() noexcept;

  CudaShared& shared_;
  CudaStream& origin_;
  const std::vector<CudaStream*> others_;
  std::vector<const CudaEvent*> awaited_;
  const uint64_t number_;
  bool open_ = false;
};

class CudaGraph {
 public:
  // Of a capture whose work is complete; `name` outlives the graph. Throws DeviceError,
  // BudgetError.
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
  const std::shared_ptr<CudaMark> mark_;  // the origin's, while it lives
  const std::vector<CudaStream*> others_;
  const std::vector<const CudaEvent*> awaited_;
  const CudaTraffic traffic_;
  void* instance_ = nullptr;
  uint64_t bytes_ = 0;  // of the GPU's memory
};

}  // namespace fasa
