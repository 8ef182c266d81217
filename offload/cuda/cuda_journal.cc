#include "offload/cuda/cuda_journal.h"

#include <fmt/format.h>

#include <algorithm>

namespace fasa {

void CudaJournal::note(const char* name, OperationTag tag, CudaJournal* source,
                       uint64_t source_number) {
  const uint64_t number = enqueued_.load(std::memory_order_relaxed) + 1;
  Entry& entry = entries_[number % kKept];
  entry.name.store(name, std::memory_order_relaxed);
  entry.tag.store(tag, std::memory_order_relaxed);
  entry.source.store(source, std::memory_order_relaxed);
  entry.source_number.store(source_number, std::memory_order_relaxed);
  enqueued_.store(number, std::memory_order_release);
}

// The recursion terminates: it follows a wait only if its own mark advanced, and marks are bounded.
void CudaJournal::passed(uint64_t number) {
  uint64_t before = passed_.load(std::memory_order_relaxed);
  do {
    if (before >= number) return;
  } while (!passed_.compare_exchange_weak(before, number));
  const uint64_t oldest = enqueued() + 1 - std::min(enqueued(), kKept - 1);
  for (uint64_t i = std::max(before + 1, oldest); i <= number; ++i) {
    const Entry& entry = entries_[i % kKept];
    CudaJournal* const source = entry.source.load(std::memory_order_relaxed);
    if (source != nullptr) source->passed(entry.source_number.load(std::memory_order_relaxed));
  }
}

std::string CudaJournal::describe(uint64_t number) const {
  const Entry& entry = entries_[number % kKept];
  const int layer = entry.tag.load(std::memory_order_relaxed).layer;
  const char* const name = entry.name.load(std::memory_order_relaxed);
  return layer < 0 ? fmt::format("'{}'", name) : fmt::format("'{}' of layer {}", name, layer);
}

// Waits at either end are omitted: they cannot have failed.
std::string CudaJournal::under_way() const {
  uint64_t last = last_work_.load(std::memory_order_relaxed);
  const uint64_t passed = passed_.load(std::memory_order_relaxed);
  if (passed >= last) return "";
  uint64_t first = std::max(passed + 1, last + 1 - std::min(last, kKept - 1));
  while (first < last && entries_[first % kKept].source.load() != nullptr) ++first;
  if (first == last) return fmt::format("{} on {}", describe(last), stream_);
  return fmt::format("{} to {} ({} operations) on {}", describe(first), describe(last),
                     last - passed, stream_);
}

}  // namespace fasa
