// The targets of the CUDA device's StreamViews and EventViews.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "offload/cuda/cuda_graph.h"
#include "offload/cuda/cuda_record.h"
#include "offload/cuda/cuda_shared.h"
#include "runtime/base/error.h"

namespace fasa {

// The first host function of a stream that threw.
struct CudaHostFailure {
  std::atomic<uint64_t> number{UINT64_MAX};  // of the operation; earlier ones succeeded
  std::string message;                       // written before `number`
};

// A recording of an event is identified by its stream's journal and the operation number reached.
struct CudaEvent {
  explicit CudaEvent(CudaCalls& runtime) : calls(runtime) {}

  // The native event to wait for: the event itself or, if it was recorded in a graph, the position
  // of the graph's origin stream behind its last launch.
  void* point() const { return mark ? mark->native() : native; }
  CudaJournal& journal_at() const { return mark ? mark->journal() : *journal; }
  uint64_t number_at() const { return mark ? mark->number() : number; }

  CudaCalls& calls;
  void* native = nullptr;
  CudaJournal* journal = nullptr;  // null: never recorded
  uint64_t number = 0;
  std::shared_ptr<CudaHostFailure> failure;
  TimelineStream stream = 0;
  // The stream's last operation before the recording, for timelines.
  const char* last_name = nullptr;
  OperationTag last_tag;
  uint64_t capture = 0;                  // capture of the last recording; 0: none,
  std::shared_ptr<const CudaMark> mark;  // and mark is null
};

// A stream created here or adopted from an engine. One thread enqueues at a time.
class CudaStream {
 public:
  enum class Ownership : uint8_t { kOurs, kTheirs };

  CudaStream(CudaShared& shared, void* native, Ownership ownership, std::string_view name);
  CudaStream(const CudaStream&) = delete;  // owns its stream
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream();  // waits for the stream's work

  // Runs `enqueue`, which enqueues one operation on native() and returns its status.
  template <typename Enqueue>
  void run(const CudaCall& call, OperationTag tag, const KernelWork& work, const Enqueue& enqueue) {
    shared_.require_context();
    const CudaGpuScope scope = shared_.enter();
    if (CudaCapture* const capture = CudaCapture::current(); capture != nullptr) [[unlikely]] {
      capture->require(*this);
      shared_.check(enqueue(), call);
      return;
    }
    journal_.note(call.name, tag);
    const bool recorded = shared_.hook.timeline() != nullptr;
    if (recorded) [[unlikely]]
      begin_record(call.name, tag, work);
    shared_.check(enqueue(), call);
    if (recorded) [[unlikely]]
      record_.end(native_);
  }
  void run_kernel(const KernelCall& call, OperationTag tag);
  // Enqueues host code, which must not call CUDA or touch device memory. If it throws, later host
  // functions of this stream and waits for it fail with the same error.
  void run_on_host(const char* name, OperationTag tag, std::function<KernelWork()> work);

  void record(CudaEvent& event);
  void wait(const CudaEvent& event, OperationTag tag);
  void synchronize();  // throws what failed
  // The same for a stream that another thread may be capturing, in which case it does nothing. Call
  // it with CudaShared::streams_mutex held.
  void synchronize_all_but_captured();
  void flush(Timeline* timeline) { record_.flush(timeline); }

  // Work given to `other` from now on runs after all work in this stream; also valid during
  // captures.
  void join(CudaStream& other);
  // The mark for graphs of which this is the origin: see CudaMark. Null before the first
  // place_mark().
  const std::shared_ptr<CudaMark>& mark() const { return mark_; }
  void place_mark();
  // Makes this stream wait for another stream's mark.
  void follow(const CudaMark& mark);
  // True if nothing was enqueued on the stream since it followed the mark.
  bool idle_since(const CudaMark& mark) const {
    return followed_ == &mark && followed_at_ == journal_.enqueued();
  }

  void* native() const { return native_; }
  Ownership ownership() const { return ownership_; }
  const CudaJournal& journal() const { return journal_; }

 private:
  void begin_record(const char* name, OperationTag tag, const KernelWork& work);

  CudaShared& shared_;
  void* const native_;
  const Ownership ownership_;
  const TimelineStream timeline_key_;
  CudaJournal& journal_;
  const std::shared_ptr<CudaHostFailure> failure_ = std::make_shared<CudaHostFailure>();
  CudaRecord record_;
  CudaEvent tail_{shared_.calls};  // for join()
  std::shared_ptr<CudaMark> mark_;
  const CudaMark* followed_ = nullptr;
  uint64_t followed_at_ = 0;
};

// Throws UsageError for a stream that is not one of a CUDA device's.
CudaStream& cuda_stream_of(StreamView stream);

// Throws the error of the stream's host functions up to operation `number`, if any.
void throw_host_failure(const CudaHostFailure& failure, uint64_t number);

}  // namespace fasa
