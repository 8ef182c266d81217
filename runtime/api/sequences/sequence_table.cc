#include "runtime/api/sequences/sequence_table.h"

#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {

SequenceTable::SequenceTable(Device& device, const StepSettings& settings, Fences& fences)
    : settings_(settings), stores_(device, settings, fences) {}

SequenceId SequenceTable::add(std::unique_ptr<KvSequence> sequence) {
  const uint64_t id = next_id_++;
  sequences_[id] = std::move(sequence);
  return SequenceId{id};
}

SequenceId SequenceTable::create() { return add(std::make_unique<KvSequence>(settings_, stores_)); }

SequenceId SequenceTable::fork(const KvSequence& parent, int64_t tokens, const Stream& control) {
  auto child = std::make_unique<KvSequence>(settings_, stores_);
  child->share(parent, tokens, control);
  parent.require_usable();  // memory was waited for
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
  sequence.require_usable();
  return sequence;
}

void SequenceTable::add_to(KvMemory& memory) const {
  for (const auto& store : stores_.rows) {
    memory.rows_in(store->tier().space) += store->bytes();
  }
  memory.device_slices += stores_.slices.held_bytes();
  std::unordered_set<const void*> counted;
  for (const auto& [id, sequence] : sequences_) {
    for (const auto& own : sequence->memories()) {
      memory.device_states += own->device_bytes();
      own->visit_host_memory([&](const void* part, uint64_t bytes) {
        if (counted.insert(part).second) memory.host_states += bytes;
      });
    }
    const SequenceSlices& slices = sequence->slices();
    memory.device_slices += slices.tail_bytes();
    memory.device_scratch += slices.table_bytes();
    memory.host_tables += slices.host_table_bytes();
    for (const auto& rows : sequence->groups()) {
      const RowMemory own = rows->memory();
      memory.device_rows += own.copies;
      memory.device_hot_rows += own.hot_rows;
      memory.device_extra += own.extra_hot_rows;
      memory.device_scratch += own.tables;
      memory.host_tables += own.host_tables;
    }
  }
}

}  // namespace fasa
