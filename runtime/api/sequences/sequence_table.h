// The sequences of a runtime by their ids, and the pools that their pages come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "offload/device.h"
#include "runtime/api/kv_metrics.h"
#include "runtime/api/sequences/runtime.h"
#include "scheduler/cache/kv_sequence.h"
#include "scheduler/step_settings.h"

namespace fasa {

class SequenceTable {
 public:
  // `settings` outlive it.
  SequenceTable(Device& device, const StepSettings& settings);

  SequenceId create();
  SequenceId fork(const KvSequence& parent, int64_t tokens);  // see KvSequence::share
  void free(SequenceId id);
  // Throws UsageError where there is no such sequence.
  KvSequence& find(SequenceId id) const;
  // Throws DeviceError, too, where a device failure took it.
  KvSequence& find_usable(SequenceId id) const;
  // Sequences that were freed meanwhile need not know. The first error counts.
  void mark_failed(std::span<const uint64_t> ids, const std::string& reason);

  size_t size() const { return sequences_.size(); }
  auto begin() const { return sequences_.begin(); }
  auto end() const { return sequences_.end(); }
  // Gives back blocks that no page uses.
  void trim();
  // Adds pages, tails, hot rows, copies and tables.
  void add_to(KvMemory& memory) const;

 private:
  SequenceId add(std::unique_ptr<KvSequence> sequence);

  Device& device_;
  const StepSettings& settings_;
  KvPools pools_;
  std::unordered_map<uint64_t, std::unique_ptr<KvSequence>> sequences_;
  uint64_t next_id_ = 1;
};

}  // namespace fasa
