// Frees the memory that a call of the sequences API allocated before it failed.
#pragma once

#include <fmt/format.h>

#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "runtime/api/sequences/step_streams.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {

// After a call that failed for lack of memory, nothing has changed: memory promised by an earlier
// reserve() is still there, and no work of the call is under way.
class MemoryGuard {
 public:
  MemoryGuard(StepStreams& streams, PrefetchControl& prefetch)
      : streams_(streams),
        prefetch_(prefetch),
        scratch_(streams.engine().scratch()),
        before_(scratch_.capacities()),
        hot_rows_(streams.sequences().store().hot_rows()) {
    for (size_t i = 0; i < capacities_.size(); ++i) capacities_[i] = streams.slots()[i].capacity();
  }
  MemoryGuard(const MemoryGuard&) = delete;  // gives back once
  MemoryGuard& operator=(const MemoryGuard&) = delete;
  ~MemoryGuard() {
    if (!kept_) give_back();
  }
  void watch(KvSequence& sequence) { sequences_.emplace_back(&sequence, sequence.mark()); }
  void keep() { kept_ = true; }

 private:
  // New memory is freed first, so the old sizes fit again, unless another user of the device takes
  // the memory meanwhile. In that case the next step allocates anew.
  void give_back() noexcept {
    try {
      streams_.wait(streams_.latest());
    } catch (const std::exception& error) {
      warn_of_loss(error);
    }
    for (const auto& [sequence, mark] : sequences_) sequence->back_to(mark);
    streams_.sequences().trim();
    if (!(scratch_.capacities() == before_)) {
      scratch_.drop_decode();
      scratch_.drop_prefill();
    }
    streams_.sequences().store().set_hot_rows(hot_rows_);
    auto& slots = streams_.slots();
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!(slots[i].capacity() == capacities_[i])) slots[i].drop();
    }
    try {
      prefetch_.set_hot_rows(hot_rows_);
      for (size_t i = 0; i < slots.size(); ++i) slots[i].ensure(capacities_[i]);
      scratch_.return_to(before_);
      // Last: a private page stays, and the next step allocates copies that are missing.
      for (const auto& [sequence, mark] : sequences_) sequence->retake(mark);
    } catch (const std::exception& error) {
      warn_of_loss(error);
    }
  }

  static void warn_of_loss(const std::exception& why) noexcept {
    try {
      log_warning(fmt::format("reserved memory was lost: {}", why.what()));
    } catch (const std::exception&) {
      // No memory for the message.
    }
  }

  StepStreams& streams_;
  PrefetchControl& prefetch_;
  StepScratch& scratch_;
  const Capacities before_;
  const int hot_rows_;
  std::array<DescriptorBuffer::Capacity, 2> capacities_{};
  std::vector<std::pair<KvSequence*, KvSequence::Mark>> sequences_;
  bool kept_ = false;
};

}  // namespace fasa
