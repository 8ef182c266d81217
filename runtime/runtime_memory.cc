// Which memory a sequence and a step need, and getting it.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/memory_prediction.h"
#include "runtime/runtime_impl.h"

namespace fasa {
KvMemory Runtime::Impl::predict(int64_t tokens, int step_tokens) const {
  return predict_memory(settings_, tokens, step_tokens);
}

void Runtime::Impl::require_room(int64_t tokens, int step_tokens) const {
  const KvMemory need = predict(tokens, step_tokens);
  const auto require = [&](MemorySpace space, uint64_t bytes, const char* limit) {
    const MemoryUse use = device_.memory(space);
    if (bytes <= use.limit_bytes - std::min(use.used_bytes, use.limit_bytes)) return;
    throw BudgetError(
        limit, bytes, use.used_bytes, use.limit_bytes,
        fmt::format("the KV cache of {} tokens (prefill in chunks of {})", tokens, step_tokens));
  };
  require(MemorySpace::kDevice, need.device_total(), "device_memory");
  if (!device_.unified()) require(MemorySpace::kHost, need.host_rows, "host_memory");
}

void Runtime::Impl::reserve(SequenceId id, int64_t tokens, int step_tokens) {
  require_no_step("reserve");
  KvSequence& sequence = find_usable(id);
  if (tokens < 0 || tokens > INT32_MAX || step_tokens < 1) {
    throw UsageError(
        fmt::format("reserve: {} tokens in steps of {}; allowed: 0 to {}, and 1 or "
                    "more a step",
                    tokens, step_tokens, INT32_MAX));
  }
  // Beside other sequences, or grown, it shares what is there: only the allocations can tell.
  if (sequences_.size() == 1 && sequence.reserved().row_pages == 0 && scratch_.bytes() == 0) {
    require_room(tokens, step_tokens);
  }
  const auto [decode, prefill] = reserved_shapes(settings_, tokens, step_tokens);
  ensure_scratch(decode, prefill);
  for (StepSlot& slot : slots_) slot.ensure(1);
  sequence.reserve(tokens);
}

void Runtime::Impl::ensure_scratch(const DecodeShape& decode, const PrefillShape& prefill) {
  const bool drop = scratch_.has_prefill() && prefill.tokens == 0 && decode.count > 0;
  if (scratch_.covers(decode, prefill) && !drop) return;
  drain();
  if (drop) scratch_.drop_prefill();
  scratch_.ensure(decode, prefill);
}

void Runtime::Impl::prepare_memory(std::span<const StepSequence> sequences) {
  int decodes = 0;
  DecodeShape decode;
  PrefillShape prefill;
  for (const StepSequence& part : sequences) {
    const int64_t length = find(part.sequence).length();
    if (part.mode == StepMode::kDecode) {
      ++decodes;
      decode = decode.joined(decode_shape(settings_, length + 1, 0));
    } else {
      const PrefillShape one = prefill_shape(settings_, length, part.tokens);
      prefill.pages += one.pages;
      prefill.tokens += one.tokens;
      prefill.past_pages = std::max(prefill.past_pages, one.past_pages);
    }
  }
  // Scratch is indexed by the sequence's place in the step.
  if (decodes > 0) decode.count = static_cast<int>(sequences.size());
  ensure_scratch(decode, prefill);

  std::vector<std::pair<KvSequence*, KvSequence::Reserved>> before;
  try {
    for (StepSlot& slot : slots_) {
      if (slot.capacity() >= sequences.size()) continue;
      drain();
      slot.ensure(sequences.size());
    }
    for (const StepSequence& part : sequences) {
      KvSequence& sequence = find(part.sequence);
      before.emplace_back(&sequence, sequence.reserved());
      if (sequence.needs_private_page()) {
        drain();  // the shared page's last rows may be on their way to the host
        sequence.make_last_page_private(control_.view());
      }
      sequence.reserve(sequence.length() + part.tokens);
    }
  } catch (...) {
    for (const auto& [sequence, reserved] : before) sequence->give_back_to(reserved);
    throw;
  }
}

KvMemory Runtime::Impl::memory() const {
  KvMemory memory;
  const uint64_t rows = pools_.rows.held_bytes();
  (settings_.rows_on_device ? memory.device_rows : memory.host_rows) = rows;
  memory.device_slices = pools_.slices.held_bytes();
  memory.device_scratch = scratch_.bytes() + slice_dims_.bytes() + counters_.bytes();
  for (const StepSlot& slot : slots_) memory.device_scratch += slot.bytes();
  for (const auto& [id, sequence] : sequences_) {
    memory.device_slices += sequence->tail_bytes();
    memory.device_hot_rows += sequence->hot_bytes();
    memory.device_scratch += sequence->table_bytes();
  }
  return memory;
}

}  // namespace fasa
