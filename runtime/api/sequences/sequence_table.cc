#include "runtime/api/sequences/sequence_table.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"

namespace fasa {

SequenceTable::SequenceTable(Device& device, const StepSettings& settings, Fences& fences)
    : device_(device),
      settings_(settings),
      pools_{BlockPool(device, settings.rows_on_device ? MemorySpace::kDevice : MemorySpace::kHost,
                       static_cast<size_t>(settings.layout.row_block_bytes()), "rows", &fences),
             BlockPool(device, MemorySpace::kDevice,
                       static_cast<size_t>(settings.layout.slice_block_bytes()), "slices", &fences),
             BlockPool(device, MemorySpace::kDevice,
                       static_cast<size_t>(settings.window_rows.row_block_bytes()), "window rows",
                       &fences),
             settings.max_hot_rows} {}

SequenceId SequenceTable::add(std::unique_ptr<KvSequence> sequence) {
  const uint64_t id = next_id_++;
  sequences_[id] = std::move(sequence);
  return SequenceId{id};
}

SequenceId SequenceTable::create() {
  return add(std::make_unique<KvSequence>(device_, settings_, pools_));
}

SequenceId SequenceTable::fork(const KvSequence& parent, int64_t tokens) {
  auto child = std::make_unique<KvSequence>(device_, settings_, pools_);
  child->share(parent, tokens);
  return add(std::move(child));
}

void SequenceTable::free(SequenceId id) { sequences_.erase(index_of(id)); }

KvSequence& SequenceTable::find(SequenceId id) const {
  const auto found = sequences_.find(index_of(id));
  if (found == sequences_.end()) {
    throw UsageError(fmt::format("sequence {} does not exist or was freed", index_of(id)));
  }
  return *found->second;
}

KvSequence& SequenceTable::find_usable(SequenceId id) const {
  KvSequence& sequence = find(id);
  if (sequence.failure) throw DeviceError(*sequence.failure);
  return sequence;
}

void SequenceTable::trim() {
  pools_.rows.trim();
  pools_.slices.trim();
  pools_.window_rows.trim();
}

void SequenceTable::add_to(KvMemory& memory) const {
  const uint64_t rows = pools_.rows.held_bytes();
  (settings_.rows_on_device ? memory.device_rows : memory.host_rows) += rows;
  memory.device_slices += pools_.slices.held_bytes();
  memory.device_rows += pools_.window_rows.held_bytes();
  for (const auto& [id, sequence] : sequences_) {
    memory.device_slices += sequence->tail_bytes();
    memory.device_rows += sequence->copy_bytes();
    memory.device_hot_rows += sequence->hot_bytes();
    memory.device_extra += sequence->hot_rows().wide_bytes();
    memory.device_scratch += sequence->table_bytes();
    memory.host_tables += sequence->host_table_bytes();
  }
}

}  // namespace fasa
