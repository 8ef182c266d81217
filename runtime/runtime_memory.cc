// Which memory a sequence and a step need, and getting it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/base/error.h"
#include "runtime/runtime_impl.h"

namespace fasa {
std::pair<DecodeShape, PrefillShape> Runtime::Impl::reserved_shapes(int64_t tokens,
                                                                    int step_tokens) const {
  const int64_t last_start = std::max<int64_t>(0, tokens - 1);  // chunks may end anywhere
  return {decode_shape(tokens, 1),
          step_tokens > 1 ? prefill_shape(last_start, step_tokens) : PrefillShape{}};
}

KvMemory Runtime::Impl::predict(int64_t tokens, int step_tokens) const {
  const CacheLayout& layout = settings_.layout;
  const auto bytes = [](int64_t count) { return static_cast<uint64_t>(count); };
  const int64_t row_pages = pages_of(tokens);
  KvMemory memory;
  const uint64_t rows = bytes(row_pages * layout.row_block_bytes());
  (settings_.rows_on_device ? memory.device_rows : memory.host_rows) = rows;
  if (layout.slice.dims > 0) {
    memory.device_slices =
        bytes(tokens / kPageTokens * layout.slice_block_bytes() + layout.tail_bytes());
  }
  if (!settings_.rows_on_device) {
    memory.device_hot_rows =
        bytes(layout.hot_bytes() + layout.hot_table_bytes() + layout.resident_bytes());
  }
  const auto [decode, prefill] = reserved_shapes(tokens, step_tokens);
  // Two tables of page addresses, grown in powers of two.
  const uint64_t tables = 2 * std::bit_ceil(bytes(row_pages)) * sizeof(void*);
  memory.device_scratch = StepScratch::bytes_for(settings_, decode, prefill) + tables;
  return memory;
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
  const auto [decode, prefill] = reserved_shapes(tokens, step_tokens);
  ensure_scratch(decode, prefill);
  for (StepSlot& slot : slots_) slot.ensure(1);
  sequence.reserve(tokens);
}

DecodeShape Runtime::Impl::decode_shape(int64_t context, int count) const {
  DecodeShape shape{.count = count, .set_capacity = 0, .dense_tokens = 0};
  for (const LayerSettings& layer : settings_.layers) {
    const auto visible =
        static_cast<int32_t>(layer.window > 0 ? std::min<int64_t>(context, layer.window) : context);
    const int32_t budget = layer.budget.of(visible, settings_.budget_floor());
    const bool all = layer.dense || (settings_.rows_on_device && budget == visible);
    if (all) {
      shape.dense_tokens = std::max(shape.dense_tokens, static_cast<int>(context));
    }
    if (!layer.dense) shape.set_capacity = std::max(shape.set_capacity, budget);
  }
  return shape;
}

PrefillShape Runtime::Impl::prefill_shape(int64_t start, int tokens) const {
  if (settings_.rows_on_device) return {};
  return {.pages = pages_of(tokens) + 1,
          .tokens = tokens,
          .past_pages = static_cast<int>(start / kPageTokens)};
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
      decode = decode.joined(decode_shape(length + 1, 0));
    } else {
      const PrefillShape one = prefill_shape(length, part.tokens);
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
