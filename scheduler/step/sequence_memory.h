// What a sequence remembers beside its pages. Each kind is a class, made in the constructor of
// KvSequence; kernels reach it by an accessor of its own.
#pragma once

#include <cstdint>
#include <functional>

#include "offload/device.h"

namespace fasa {

class SequenceMemory {
 public:
  SequenceMemory() = default;
  virtual ~SequenceMemory() = default;
  SequenceMemory(const SequenceMemory&) = delete;  // share() makes copies
  SequenceMemory& operator=(const SequenceMemory&) = delete;

  // Begins with the first `tokens` tokens, a resume point, of another sequence's memory of this
  // kind. `stream` comes after earlier work; it is not a view, because an allocation may wait for
  // streams that have failed, and others take their place. Throws BudgetError.
  virtual void share(const SequenceMemory& parent, int64_t tokens, const Stream& stream) = 0;
  // The most tokens, at most `tokens`, that truncate() can go back to.
  virtual int64_t resume_point(int64_t tokens) const { return tokens; }
  virtual void truncate(int64_t tokens) = 0;
  // The present length, and `tokens`, which the sequence may have later, are to stay resume points.
  virtual void mark_turn() {}
  virtual void hold(int64_t /*tokens*/) {}
  virtual int64_t held() const { return 0; }  // 0: none

  // Allocates device memory. Throws BudgetError.
  virtual void reserve() {}
  virtual bool reserved() const { return true; }
  // After a call that failed before its work was enqueued.
  virtual void back_to(bool /*reserved*/) noexcept {}

  struct Step {
    int64_t position = 0;  // tokens of the sequence
    int64_t tokens = 0;
    bool decodes = false;
    bool undoable = false;         // after abort() all is as before, though kernels have run
    int64_t rollback_tokens = -1;  // see KvSequence; 0: no snapshots
  };
  // Begins a step, in reserved memory. `stream` as for share(). Throws UsageError, and BudgetError
  // for what an undoable step keeps.
  virtual void begin(const Step&, const Stream& /*stream*/) {}
  // The step's kernels were enqueued, and have run; its first `tokens` tokens stay.
  virtual void commit(int64_t /*tokens*/) {}
  // `computed`: they may have run. The sequence has `tokens` tokens.
  virtual void abort(int64_t tokens, bool computed) = 0;

  virtual uint64_t device_bytes() const { return 0; }
  // Calls visit(address, bytes) for its parts in host memory; forks share some.
  using Visit = std::function<void(const void*, uint64_t)>;
  virtual void visit_host_memory(const Visit&) const {}
};

}  // namespace fasa
