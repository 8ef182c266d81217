#include "runtime/api/sequences/step_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/api/memory_estimate.h"
#include "runtime/base/error.h"
#include "scheduler/cache/rollback_window.h"

namespace fasa {

KvMemory StepMemory::estimate_least(int64_t tokens, int step_tokens,
                                    int64_t rollback_tokens) const {
  return estimate_memory(parts_.settings, parts_.sequences.hot_rows(), tokens, step_tokens,
                         parts_.prefetch.scratch(), rollback_tokens);
}

// Lent copies use leftover memory, so they do not count.
KvMemory StepMemory::estimate(int64_t tokens, int step_tokens, int64_t rollback_tokens) const {
  KvMemory memory = estimate_least(tokens, step_tokens, rollback_tokens);
  if (!parts_.settings.device_copies) return memory;
  if (parts_.settings.access_of(tokens, parts_.sequences.hot_rows()) == RowAccess::kLocal)
    return memory;  // has all copies
  const MemoryUse use = parts_.device.memory(MemorySpace::kDevice);
  const uint64_t table = std::bit_ceil(static_cast<uint64_t>(pages_of(tokens))) * sizeof(void*);
  const uint64_t taken = use.used_bytes + memory.device_total() + table;
  const uint64_t room = use.limit_bytes - std::min(use.limit_bytes, taken);
  const auto block = static_cast<uint64_t>(parts_.settings.layout.row_block_bytes());
  memory.device_rows += std::min(memory.host_rows, room / block * block);
  return memory;
}

void StepMemory::require_room(int64_t tokens, int step_tokens, int64_t rollback_tokens) const {
  const KvMemory need = estimate_least(tokens, step_tokens, rollback_tokens);
  const auto require = [&](MemorySpace space, uint64_t bytes, const char* limit) {
    const MemoryUse use = parts_.device.memory(space);
    if (bytes <= use.limit_bytes - std::min(use.used_bytes, use.limit_bytes)) return;
    throw BudgetError(
        limit, bytes, use.used_bytes, use.limit_bytes,
        fmt::format("the KV cache of {} tokens (prefill in chunks of {})", tokens, step_tokens));
  };
  require(MemorySpace::kDevice, need.device_total(), "device_memory");
  if (!parts_.device.unified()) require(MemorySpace::kHost, need.host_rows, "host_memory");
}

void StepMemory::reserve(SequenceId id, int64_t tokens, int step_tokens) {
  KvSequence& sequence = parts_.sequences.find_usable(id);
  if (tokens < 0 || tokens > INT32_MAX || step_tokens < 1) {
    throw UsageError(
        fmt::format("reserve: {} tokens in steps of {}; allowed: 0 to {}, and 1 or "
                    "more a step",
                    tokens, step_tokens, INT32_MAX));
  }
  MemoryGuard guard(parts_);
  guard.watch(sequence);
  hot_rows_.fit(tokens, step_tokens, {.count = 1, .held = sequence.device_bytes()}, false);
  choose_access(sequence, tokens);
  // A sequence that grows, or has others beside it, shares memory: only the allocations can tell.
  if (parts_.sequences.size() == 1 && sequence.reserved().row_pages == 0 &&
      parts_.scratch.bytes() == 0) {
    require_room(tokens, step_tokens, sequence.rollback_tokens());
  }
  if (tokens > sequence.length()) own_last_page(id);
  ensure_scratch(capacities_for(parts_.settings, {.context = tokens,
                                                  .access = sequence.access(),
                                                  .hot_rows = parts_.sequences.hot_rows(),
                                                  .predictions = parts_.prefetch.scratch(),
                                                  .step_tokens = step_tokens}));
  for (DescriptorBuffer& slot : parts_.streams.slots()) slot.ensure(1);
  // Work that this call waited for may have failed.
  parts_.sequences.find_usable(id);
  if (tokens > sequence.length()) parts_.streams.require();
  sequence.reserve(tokens, step_tokens);
  guard.keep();
}

void StepMemory::choose_access(KvSequence& sequence, int64_t tokens) {
  if (!sequence.outgrows_copies(tokens)) return;
  if (sequence.copy_bytes() > 0) parts_.streams.wait(sequence.work().last());  // they leave
  sequence.read_over_link();
}

void StepMemory::ensure_scratch(const Capacities& capacities) {
  StepScratch& scratch = parts_.scratch;
  const bool decodes = capacities.decode.count > 0 && capacities.prefill.tokens == 0;
  if (decodes && scratch.has_prefill()) scratch.drop_prefill();
  scratch.ensure(capacities);
}

void StepMemory::own_last_page(SequenceId id) {
  KvSequence& sequence = parts_.sequences.find(id);
  if (!sequence.needs_private_page()) return;
  // Behind the steps that wrote the shared page, and those that last used the new block.
  parts_.streams.order(parts_.streams.latest());
  parts_.streams.note_control_work(id);
  sequence.make_last_page_private(parts_.streams.control());
}

void StepMemory::ensure_step_scratch(std::span<const StepSequence> sequences) {
  const StepSettings& settings = parts_.settings;
  RowAccess decoded = RowAccess::kLocal;
  for (const StepSequence& part : sequences) {
    const RowAccess access = parts_.sequences.find(part.sequence).access();
    if (part.mode == StepMode::kDecode) decoded = std::max(decoded, access);
  }
  int tokens = 0;
  int places = 0;  // one per decoded token and per prompt
  DecodeCapacities decode;
  PrefillCapacities prefill;
  for (const StepSequence& part : sequences) {
    const KvSequence& sequence = parts_.sequences.find(part.sequence);
    tokens += part.tokens;
    places += part.mode == StepMode::kDecode ? part.tokens : 1;
    if (part.mode == StepMode::kDecode) {
      const Load load{.context = sequence.length() + part.tokens,
                      .access = decoded,
                      .hot_rows = parts_.sequences.hot_rows(),
                      .predictions = parts_.prefetch.scratch()};
      decode = decode.joined(capacities_for(settings, load).decode);
    } else {
      const PrefillCapacities one =
          prefill_capacities(sequence.length(), part.tokens, sequence.access());
      prefill.pages += one.pages;
      prefill.tokens += one.tokens;
      prefill.past_pages = std::max(prefill.past_pages, one.past_pages);
    }
  }
  // Scratch is indexed by the position in the step, a prefill's state by the token.
  if (decode.count > 0) decode.count = places;
  if (prefill.tokens > 0) prefill.tokens = tokens;
  ensure_scratch({decode, prefill});
}

// Runs before pages are allocated, so that these can be reused.
void StepMemory::drop_pages(std::span<const StepSequence> sequences) {
  for (const StepSequence& part : sequences) {
    KvSequence& sequence = parts_.sequences.find(part.sequence);
    if (sequence.droppable() < kPagesDroppedTogether) continue;
    if (sequence.copy_bytes() > 0) parts_.streams.wait(sequence.work().last());  // they leave
    sequence.drop_pages();
  }
}

void StepMemory::prepare(std::span<const StepSequence> sequences, MemoryGuard& guard) {
  drop_pages(sequences);
  // Runs before scratch is dropped: copied pages stay, and scratch must fit beside them.
  for (const StepSequence& part : sequences) {
    guard.watch(parts_.sequences.find(part.sequence));
    own_last_page(part.sequence);
  }
  int64_t tokens = 0;
  int new_tokens = 1;
  ExtraHotRows::Load load{.count = static_cast<int>(sequences.size())};
  for (const StepSequence& part : sequences) {
    const KvSequence& sequence = parts_.sequences.find(part.sequence);
    tokens = std::max(tokens, sequence.length() + part.tokens);
    new_tokens = std::max(new_tokens, part.tokens);
    load.held += sequence.device_bytes();
  }
  hot_rows_.fit(tokens, new_tokens, load, true);
  for (const StepSequence& part : sequences) {
    KvSequence& sequence = parts_.sequences.find(part.sequence);
    choose_access(sequence, sequence.length() + part.tokens);
  }
  ensure_step_scratch(sequences);
  for (DescriptorBuffer& slot : parts_.streams.slots()) slot.ensure(sequences.size());
  for (const StepSequence& part : sequences) {
    KvSequence& sequence = parts_.sequences.find(part.sequence);
    sequence.reserve(sequence.length() + part.tokens);
  }
  copies_.copy_new_pages(sequences);
  hot_rows_.widen(sequences);
  // Work that this call waited for may have failed.
  for (const StepSequence& part : sequences) parts_.sequences.find_usable(part.sequence);
  parts_.streams.require();
}

}  // namespace fasa
