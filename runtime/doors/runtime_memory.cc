// Which memory a sequence and a step need, and getting it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/doors/memory_guard.h"
#include "runtime/doors/memory_prediction.h"
#include "runtime/doors/runtime_impl.h"

namespace fasa {

KvMemory Runtime::Impl::predict_least(int64_t tokens, int step_tokens) const {
  return predict_memory(settings_, tokens, step_tokens, prefetch_.scratch());
}

// Copies of rows take what is left.
KvMemory Runtime::Impl::predict(int64_t tokens, int step_tokens) const {
  KvMemory memory = predict_least(tokens, step_tokens);
  if (!settings_.device_copies) return memory;
  const MemoryUse use = device_.memory(MemorySpace::kDevice);
  const uint64_t table = std::bit_ceil(static_cast<uint64_t>(pages_of(tokens))) * sizeof(void*);
  const uint64_t taken = use.used_bytes + memory.device_total() + table;
  const uint64_t room = use.limit_bytes - std::min(use.limit_bytes, taken);
  const auto block = static_cast<uint64_t>(settings_.layout.row_block_bytes());
  memory.device_rows = std::min(memory.host_rows, room / block * block);
  return memory;
}

void Runtime::Impl::require_room(int64_t tokens, int step_tokens) const {
  const KvMemory need = predict_least(tokens, step_tokens);
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
  MemoryGuard guard(*this);
  fit_hot_rows(tokens, step_tokens, 1, false);
  // Beside other sequences, or grown, it shares what is there: only the allocations can tell.
  if (sequences_.size() == 1 && sequence.reserved().row_pages == 0 && scratch_.bytes() == 0) {
    require_room(tokens, step_tokens);
  }
  const auto [decode, prefill] =
      reserved_shapes(settings_, tokens, step_tokens, prefetch_.scratch());
  ensure_scratch(decode, prefill);
  for (DescriptorBuffer& slot : slots_) slot.ensure(1);
  find_usable(id);  // of what was waited for on the way, something may have failed
  if (tokens > sequence.length()) {
    own_last_page(id);
    require_streams();
  }
  sequence.reserve(tokens);
  guard.keep();
}

uint64_t Runtime::Impl::needed_with(int hot_rows, int64_t tokens, int step_tokens) {
  const int before = std::exchange(settings_.layout.hot_rows, hot_rows);
  const uint64_t bytes = predict_least(tokens, step_tokens).device_total();
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
  const int set = std::min(*hot_rows_wanted_, decode_shape(settings_, tokens, 1).selected_capacity);
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

void Runtime::Impl::ensure_scratch(const DecodeShape& decode, const PrefillShape& prefill) {
  const bool drop = scratch_.has_prefill() && prefill.tokens == 0 && decode.count > 0;
  if (scratch_.covers(decode, prefill) && !drop) return;
  drain();
  if (drop) scratch_.drop_prefill();
  scratch_.ensure(decode, prefill);
}

void Runtime::Impl::own_last_page(SequenceId id) {
  KvSequence& sequence = find(id);
  if (!sequence.needs_private_page()) return;
  drain();  // the shared page's last rows may be on their way to the host
  note_control_work(id);
  sequence.make_last_page_private(control_.view());
}

void Runtime::Impl::prepare_memory(std::span<const StepSequence> sequences, MemoryGuard& guard) {
  int64_t tokens = 0;
  int new_tokens = 1;
  for (const StepSequence& part : sequences) {
    tokens = std::max(tokens, find(part.sequence).length() + part.tokens);
    new_tokens = std::max(new_tokens, part.tokens);
  }
  fit_hot_rows(tokens, new_tokens, static_cast<int>(sequences.size()), true);
  int decodes = 0;  // tokens
  int places = 0;   // each token that is decoded has one, each prompt too
  DecodeShape decode;
  PrefillShape prefill;
  for (const StepSequence& part : sequences) {
    const int64_t length = find(part.sequence).length();
    places += part.mode == StepMode::kDecode ? part.tokens : 1;
    if (part.mode == StepMode::kDecode) {
      decodes += part.tokens;
      decode = decode.joined(decode_shape(settings_, length + part.tokens, 0, prefetch_.scratch()));
    } else {
      const PrefillShape one = prefill_shape(settings_, length, part.tokens);
      prefill.pages += one.pages;
      prefill.tokens += one.tokens;
      prefill.past_pages = std::max(prefill.past_pages, one.past_pages);
    }
  }
  // Scratch is indexed by the place in the step, a prefill's state by the token's.
  if (decodes > 0) decode.count = places;
  if (prefill.tokens > 0) prefill.tokens += decodes;
  ensure_scratch(decode, prefill);

  for (DescriptorBuffer& slot : slots_) {
    if (slot.capacity() >= sequences.size()) continue;
    drain();
    slot.ensure(sequences.size());
  }
  for (const StepSequence& part : sequences) {
    KvSequence& sequence = find(part.sequence);
    guard.watch(sequence);
    own_last_page(part.sequence);
    sequence.reserve(sequence.length() + part.tokens);
  }
  copy_new_pages(sequences);
  widen_hot_rows(sequences);
  // Of what was waited for on the way, something may have failed.
  for (const StepSequence& part : sequences) find_usable(part.sequence);
  require_streams();
}

KvMemory Runtime::Impl::memory() const {
  KvMemory memory;
  const uint64_t rows = pools_.rows.held_bytes();
  (settings_.rows_on_device ? memory.device_rows : memory.host_rows) = rows;
  memory.device_slices = pools_.slices.held_bytes();
  memory.device_scratch = scratch_.bytes() + slice_dims_.bytes() + slopes_.bytes() +
                          counters_.bytes() + graphs_.bytes(device_);
  for (const DescriptorBuffer& slot : slots_) memory.device_scratch += slot.bytes();
  for (const auto& [id, sequence] : sequences_) {
    memory.device_slices += sequence->tail_bytes();
    memory.device_rows += sequence->device_rows().copy_bytes();
    memory.device_hot_rows += sequence->hot_bytes();
    memory.device_scratch += sequence->table_bytes();
    memory.host_tables += sequence->host_table_bytes();
  }
  return memory;
}

}  // namespace fasa
