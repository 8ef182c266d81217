// The states of a runtime's sequences in layers with linear attention. Empty without such layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/api/sequences/sequence_table.h"
#include "scheduler/cache/linear_state.h"

namespace fasa {

class LinearStates {
 public:
  LinearStates(Device& device, const LinearShape& shape, const SnapshotRule& rule)
      : device_(device), layout_(shape), rule_(rule) {}
  LinearStates(const LinearStates&) = delete;  // the states refer to it
  LinearStates& operator=(const LinearStates&) = delete;

  bool empty() const { return layout_.shape().layers == 0; }
  void create(SequenceId id);
  void free(SequenceId id) { states_.erase(index_of(id)); }
  // Throws UsageError if `tokens` is no resume point.
  void require_resume_point(const char* call, SequenceId id, int64_t tokens) const;
  int64_t resume_point(SequenceId id, int64_t tokens) const;
  void truncate(SequenceId id, int64_t tokens);
  void mark(SequenceId id) {
    if (!empty()) at(id).mark();
  }
  void hold(SequenceId id, int64_t tokens) {
    if (!empty()) at(id).hold(tokens);
  }
  int64_t held(SequenceId id) const { return empty() ? 0 : at(id).held(); }
  // A child's state; throws BudgetError. Then add() it.
  std::optional<LinearState> fork(SequenceId id, int64_t tokens, StreamView stream) const;
  void add(SequenceId id, std::optional<LinearState> state);

  // See Runtime. `stream` comes after earlier work.
  std::vector<StatePoint> points(SequenceId id) const;
  void export_state(SequenceId id, const StatePoint& point, size_t offset,
                    std::span<std::byte> bytes, StreamView stream) const;
  void import_state(SequenceId id, int64_t length, const StatePoint& point, size_t offset,
                    std::span<const std::byte> bytes, StreamView stream);

  class Guard;
  std::span<const LinearPart> parts();  // of the open step, for kernels
  // Throws UsageError if the step's parts were not computed.
  void require_computed() const;
  void commit(std::span<const StepSequence> step);
  void abort(std::span<const StepSequence> step);
  void add_to(KvMemory& memory) const;

 private:
  void begin(std::span<const StepSequence> step, const SequenceTable& sequences, StreamView stream);
  LinearState& at(SequenceId id) { return states_.at(index_of(id)); }
  const LinearState& at(SequenceId id) const { return states_.at(index_of(id)); }

  Device& device_;
  const LinearLayout layout_;
  const SnapshotRule rule_;
  std::unordered_map<uint64_t, LinearState> states_;
  std::vector<LinearPart> parts_;
  bool computed_ = false;
};

// Reserves memory and begins steps, and undoes both unless keep() was called.
class LinearStates::Guard {
 public:
  explicit Guard(LinearStates& states) : states_(states) {}
  ~Guard();
  Guard(const Guard&) = delete;  // undoes once
  Guard& operator=(const Guard&) = delete;

  void reserve(SequenceId id);  // throws BudgetError
  // Throws UsageError.
  void begin(std::span<const StepSequence> step, const SequenceTable& sequences, StreamView stream);
  void keep() { kept_ = true; }

 private:
  LinearStates& states_;
  std::vector<LinearState*> reserved_;  // by this call
  std::span<const StepSequence> begun_ = {};
  bool kept_ = false;
};

}  // namespace fasa
