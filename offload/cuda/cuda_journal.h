// Operations enqueued on a stream that may still be in flight: the runtime reports that work
// failed, but not which.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "offload/operation_tag.h"

namespace fasa {

// One thread writes, any thread reads, without locks or allocation. A concurrent reader may pair
// the newest operation's name with an older one's layer, which an error message tolerates. A
// device's journals live as long as the device.
class CudaJournal {
 public:
  explicit CudaJournal(std::string stream) : stream_(std::move(stream)) {}

  // `name` outlives the journal.
  void note(const char* name, OperationTag tag) {
    note(name, tag, nullptr, 0);
    last_work_.store(enqueued(), std::memory_order_relaxed);
  }
  // Notes that the stream waits for all operations of `source` up to `number`.
  void note_wait(CudaJournal& source, uint64_t number) { note("wait", {}, &source, number); }
  uint64_t enqueued() const { return enqueued_.load(std::memory_order_acquire); }

  // Notes that all operations up to `number`, and those they waited for, completed without error.
  void passed(uint64_t number);

  const std::string& stream() const { return stream_; }
  const char* last_name() const { return last_work().name.load(std::memory_order_relaxed); }
  OperationTag last_tag() const { return last_work().tag.load(std::memory_order_relaxed); }

  // "'select' of layer 3 to 'attend' of layer 4 (6 operations) on compute"; "" if nothing is in
  // flight.
  std::string under_way() const;

 private:
  static constexpr uint64_t kKept = 256;
  struct Entry {
    std::atomic<const char*> name{nullptr};  // null: none yet
    std::atomic<OperationTag> tag{OperationTag{}};
    std::atomic<CudaJournal*> source{nullptr};  // for waits
    std::atomic<uint64_t> source_number{0};
  };
  void note(const char* name, OperationTag tag, CudaJournal* source, uint64_t source_number);
  const Entry& last_work() const { return entries_[last_work_.load() % kKept]; }
  std::string describe(uint64_t number) const;

  const std::string stream_;
  std::array<Entry, kKept> entries_;
  std::atomic<uint64_t> enqueued_{0};
  std::atomic<uint64_t> last_work_{0};
  std::atomic<uint64_t> passed_{0};
};

}  // namespace fasa
