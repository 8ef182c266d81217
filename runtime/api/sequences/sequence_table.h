// The sequences of a runtime by id, and the stores of their pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "offload/device.h"
#include "runtime/api/kv_metrics.h"
#include "runtime/base/ids.h"
#include "scheduler/cache/kv_sequence.h"
#include "scheduler/step_settings.h"

namespace fasa {

class SequenceTable {
 public:
  // All arguments must outlive the table.
  SequenceTable(Device& device, const StepSettings& settings, Fences& fences);

  SequenceId create();
  SequenceId fork(const KvSequence& parent, int64_t tokens, const Stream& control);  // see share()
  void free(SequenceId id);
  // Throws UsageError if there is no such sequence.
  KvSequence& find(SequenceId id) const;
  // Throws DeviceError too if a device failure took the sequence.
  KvSequence& find_usable(SequenceId id) const;
  // Marks the sequences for whose work `lost` is true as failed. The first error is kept.
  template <typename Lost>
  void mark_failed(const Lost& lost, const std::string& reason) {
    for (const auto& [id, sequence] : sequences_) {
      if (!sequence->failure && lost(sequence->work())) sequence->failure = reason;
    }
  }

  // The store of the main layout's rows.
  RowStore& store() const { return *stores_.rows.front(); }

  size_t size() const { return sequences_.size(); }
  auto begin() const { return sequences_.begin(); }
  auto end() const { return sequences_.end(); }
  // The last use of the blocks that sequences took since the last call.
  Fence take_fence() noexcept { return stores_.take_fence(); }
  // Frees blocks that no page uses.
  void trim() noexcept { stores_.trim(); }
  // Adds pages, tails, hot rows, copies, tables and memories.
  void add_to(KvMemory& memory) const;

 private:
  SequenceId add(std::unique_ptr<KvSequence> sequence);

  const StepSettings& settings_;
  KvStores stores_;
  std::unordered_map<uint64_t, std::unique_ptr<KvSequence>> sequences_;
  uint64_t next_id_ = 1;
};

}  // namespace fasa
