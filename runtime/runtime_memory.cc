// Which memory a sequence and a step need, and getting it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

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
  fit_hot_rows(tokens, step_tokens, 1, false);
  // Beside other sequences, or grown, it shares what is there: only the allocations can tell.
  if (sequences_.size() == 1 && sequence.reserved().row_pages == 0 && scratch_.bytes() == 0) {
    require_room(tokens, step_tokens);
  }
  const auto [decode, prefill] = reserved_shapes(tokens, step_tokens);
  ensure_scratch(decode, prefill);
  for (StepSlot& slot : slots_) slot.ensure(1);
  sequence.reserve(tokens);
}

uint64_t Runtime::Impl::needed_with(int hot_rows, int64_t tokens, int step_tokens) {
  const int before = std::exchange(settings_.layout.hot_rows, hot_rows);
  const uint64_t bytes = predict(tokens, step_tokens).device_total();
  settings_.layout.hot_rows = before;
  return bytes;
}

void Runtime::Impl::set_hot_rows(int hot_rows) {
  if (hot_rows == settings_.layout.hot_rows) return;
  drain();
  scratch_.drop_decode();  // was made for as many hot rows as there were
  settings_.layout.hot_rows = hot_rows;
  prefetch_.refresh();
}

// Where the length is not known (`may_grow`), the hot rows take no more than half of what is free.
void Runtime::Impl::fit_hot_rows(int64_t tokens, int step_tokens, int count, bool may_grow) {
  constexpr uint64_t kMargin = uint64_t{16} << 10;  // descriptors, alignment
  if (!hot_rows_wanted_) return;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->hot_bytes() > 0) return;
  }
  const MemoryUse use = device_.memory(MemorySpace::kDevice);
  const uint64_t used = use.used_bytes - std::min(use.used_bytes, scratch_.bytes());
  const uint64_t room =
      (use.limit_bytes - std::min(use.limit_bytes, used + kMargin)) / static_cast<uint64_t>(count);
  const auto fits = [&](int hot_rows) {
    const uint64_t need = needed_with(hot_rows, tokens, step_tokens);
    const uint64_t spare = may_grow ? need - needed_with(0, tokens, step_tokens) : 0;
    return need <= room && spare <= room - need;
  };
  // Below a whole set the misses need staging, which takes room of its own: two ranges, in each of
  // which fewer rows need less. A range that does not begin with a fit has none.
  const int set = std::min(*hot_rows_wanted_, decode_shape(tokens, 1).set_capacity);
  const auto largest = [&](int low, int high) {
    while (low < high) {
      const int middle = low + (high - low + 1) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  };
  int best = *hot_rows_wanted_;
  if (!fits(best)) best = fits(set) ? largest(set, best) : largest(0, std::max(set - 1, 0));
  set_hot_rows(best);
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
  if (prefetch_.most_ahead() > 0) add_guesses(shape, context);
  return shape;
}

void Runtime::Impl::add_guesses(DecodeShape& shape, int64_t context) const {
  shape.guess_rows = std::max(0, settings_.layout.hot_rows - shape.set_capacity);
  if (!settings_.prefetches() || shape.guess_rows == 0 || !prefetch_.predictor().writes_sets()) {
    return;
  }
  for (const LayerSettings& layer : settings_.layers) {
    if (layer.dense) continue;
    const auto visible =
        static_cast<int32_t>(layer.window > 0 ? std::min<int64_t>(context, layer.window) : context);
    shape.guess_capacity =
        std::max(shape.guess_capacity, layer.guess_budget().of(visible, settings_.budget_floor()));
  }
  shape.guess_rows = std::min(shape.guess_rows, shape.guess_capacity);
  shape.guess_buffers = prefetch_.most_ahead() + 1;
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
  int64_t tokens = 0;
  int new_tokens = 1;
  for (const StepSequence& part : sequences) {
    tokens = std::max(tokens, find(part.sequence).length() + part.tokens);
    new_tokens = std::max(new_tokens, part.tokens);
  }
  fit_hot_rows(tokens, new_tokens, static_cast<int>(sequences.size()), true);
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
