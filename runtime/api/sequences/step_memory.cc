#include "runtime/api/sequences/step_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/api/memory_estimate.h"
#include "runtime/base/error.h"

namespace fasa {

namespace {

// Tokens whose queries a page is read for at once, and whose sets hot slots hold.
int tokens_together(const StepSettings& settings, const DecodeCapacities& decode) {
  const int of_page = settings.page_queries / settings.layout.gqa_group;
  const int of_slots = decode.access == RowAccess::kLocal
                           ? of_page
                           : decode.hot_rows / std::max(1, decode.selected_capacity);
  return std::max(1, std::min(of_page, of_slots));
}

}  // namespace

KvMemory StepMemory::estimate_least(int64_t tokens, int step_tokens,
                                    int64_t rollback_tokens) const {
  return estimate_memory(engine_.settings(), sequences_.store().hot_rows(), tokens, step_tokens,
                         prefetch_.scratch(), rollback_tokens);
}

// Lent copies use leftover memory, so they do not count.
KvMemory StepMemory::estimate(int64_t tokens, int step_tokens, int64_t rollback_tokens) const {
  KvMemory memory = estimate_least(tokens, step_tokens, rollback_tokens);
  if (engine_.settings().rows != RowTier::kMirrored) return memory;
  if (engine_.settings().access_of(tokens, sequences_.store().hot_rows()) == RowAccess::kLocal)
    return memory;  // has all copies
  const MemoryUse use = engine_.device().memory(MemorySpace::kDevice);
  const uint64_t table = std::bit_ceil(static_cast<uint64_t>(pages_of(tokens))) * sizeof(void*);
  const uint64_t taken = use.used_bytes + memory.device_total() + table;
  const uint64_t room = use.limit_bytes - std::min(use.limit_bytes, taken);
  const auto block = static_cast<uint64_t>(engine_.settings().layout.row_block_bytes());
  memory.device_rows += std::min(memory.host_rows, room / block * block);
  return memory;
}

void StepMemory::require_room(int64_t tokens, int step_tokens, int64_t rollback_tokens) const {
  const KvMemory need = estimate_least(tokens, step_tokens, rollback_tokens);
  const auto require = [&](MemorySpace space, uint64_t bytes, const char* limit) {
    const MemoryUse use = engine_.device().memory(space);
    if (bytes <= use.limit_bytes - std::min(use.used_bytes, use.limit_bytes)) return;
    throw BudgetError(
        limit, bytes, use.used_bytes, use.limit_bytes,
        fmt::format("the KV cache of {} tokens (prefill in chunks of {})", tokens, step_tokens));
  };
  require(MemorySpace::kDevice, need.device_total(), "device_memory");
  if (!engine_.device().unified()) require(MemorySpace::kHost, need.host_rows, "host_memory");
}

void StepMemory::reserve(KvSequence& sequence, int64_t tokens, int step_tokens) {
  if (tokens < 0 || tokens > INT32_MAX || step_tokens < 1) {
    throw UsageError(
        fmt::format("reserve: {} tokens in steps of {}; allowed: 0 to {}, and 1 or "
                    "more a step",
                    tokens, step_tokens, INT32_MAX));
  }
  MemoryGuard guard(streams_, prefetch_);
  guard.watch(sequence);
  hot_rows_.fit(tokens, step_tokens, {.count = 1, .held = sequence.device_bytes()}, false);
  choose_access(sequence, tokens);
  // A sequence that grows, or has others beside it, shares memory: only the allocations can tell.
  if (sequences_.size() == 1 && sequence.rows().pages() == 0 && engine_.scratch().bytes() == 0) {
    require_room(tokens, step_tokens, sequence.rollback.tokens());
  }
  if (tokens > sequence.length()) own_last_page(sequence);
  ensure_scratch(capacities_for(engine_.settings(), {.context = tokens,
                                                     .access = sequence.rows().access(),
                                                     .hot_rows = sequences_.store().hot_rows(),
                                                     .predictions = prefetch_.scratch(),
                                                     .step_tokens = step_tokens}));
  for (DescriptorBuffer& slot : streams_.slots()) slot.ensure(1);
  // Work that this call waited for may have failed.
  sequence.require_usable();
  if (tokens > sequence.length()) streams_.require();
  sequence.reserve_steps(tokens, step_tokens);
  guard.keep();
}

// Before copies leave.
void StepMemory::wait_for_copies(const KvSequence& sequence) {
  if (sequence.rows().memory().copies > 0) streams_.wait_for(sequence);
}

void StepMemory::choose_access(KvSequence& sequence, int64_t tokens) {
  if (!sequence.rows().outgrows_copies(tokens)) return;
  wait_for_copies(sequence);
  sequence.read_over_link();
}

void StepMemory::ensure_scratch(const Capacities& capacities) {
  StepScratch& scratch = engine_.scratch();
  const bool decodes = capacities.decode.count > 0 && capacities.prefill.tokens == 0;
  if (decodes && scratch.has_prefill()) scratch.drop_prefill();
  scratch.ensure(capacities);
}

void StepMemory::own_last_page(KvSequence& sequence) {
  if (!sequence.reserve_private_page()) return;
  // Behind the steps that wrote the shared page, and those that last used the new block.
  streams_.order(streams_.latest());
  streams_.note_control_work(sequence);
  sequence.make_last_page_private(engine_.control());
}

DecodeRounds StepMemory::ensure_step_scratch(std::span<const StepPart> sequences) {
  const StepSettings& settings = engine_.settings();
  const RowAccess decoded = DecodeRounds::access(sequences);
  int tokens = 0;
  DecodeCapacities decode;
  PrefillCapacities prefill;
  for (const StepPart& part : sequences) {
    const KvSequence& sequence = *part.sequence;
    tokens += part.tokens;
    if (part.mode == StepMode::kDecode) {
      const Load load{.context = sequence.length() + part.tokens,
                      .access = decoded,
                      .hot_rows = sequences_.store().hot_rows(),
                      .predictions = prefetch_.scratch()};
      decode = decode.joined(capacities_for(settings, load).decode);
    } else {
      const PrefillCapacities one =
          prefill_capacities(sequence.length(), part.tokens, sequence.rows().access());
      prefill.pages += one.pages;
      prefill.tokens += one.tokens;
      prefill.past_pages = std::max(prefill.past_pages, one.past_pages);
    }
  }
  if (prefill.tokens > 0) prefill.tokens = tokens;
  // Scratch is indexed by the place in a round, a prefill's state by the token.
  const auto ensure = [&](const DecodeRounds& rounds) {
    if (decode.count > 0) decode.count = rounds.places;
    ensure_scratch({decode, prefill});
    return rounds;
  };
  const auto rounds = DecodeRounds::of(sequences, tokens_together(settings, decode));
  if (rounds.together == 1) return ensure(rounds);
  try {
    return ensure(rounds);
  } catch (const BudgetError&) {  // one token at a time needs less
    return ensure(DecodeRounds::of(sequences, 1));
  }
}

// Runs before pages are allocated, so that these can be reused.
void StepMemory::drop_pages(std::span<const StepPart> sequences) {
  for (const StepPart& part : sequences) {
    KvSequence& sequence = *part.sequence;
    const int64_t pages = sequence.rollback.droppable();
    if (pages < kPagesDroppedTogether) continue;
    wait_for_copies(sequence);
    sequence.drop_pages();
    // A prompt's chunk took them, and nothing so long follows.
    if (pages > 2 * kPagesDroppedTogether && pages > 2 * pages_of(part.tokens)) sequences_.trim();
  }
}

// From memory that is left: nothing is given up for it.
void StepMemory::lend(std::span<const StepPart> sequences) {
  const LeftoversScope leftovers(takes_leftovers_);
  engine_.scratch().widen_waves();
  for (const StepPart& part : sequences) lend_copies(part);
  hot_rows_.widen(sequences);
}

void StepMemory::lend_copies(const StepPart& part) {
  const LeftoversScope leftovers(takes_leftovers_);
  KvSequence& sequence = *part.sequence;
  sequences_.store().lend_copies(sequence.rows(), pages_of(sequence.length()),
                                 pages_of(sequence.length() + part.tokens));
}

void StepMemory::reserve_memories(KvSequence& sequence) {
  try {
    sequence.reserve_memories();
  } catch (const BudgetError&) {
    sequences_.trim();  // pools hold free blocks for the next pages
    sequence.reserve_memories();
  }
}

DecodeRounds StepMemory::prepare(std::span<const StepPart> sequences, MemoryGuard& guard) {
  drop_pages(sequences);
  // Runs before scratch is dropped: copied pages stay, and scratch must fit beside them.
  for (const StepPart& part : sequences) {
    KvSequence& sequence = *part.sequence;
    guard.watch(sequence);
    reserve_memories(sequence);  // before rows, which may take what is left
    own_last_page(sequence);
  }
  int64_t tokens = 0;
  int new_tokens = 1;
  ExtraHotRows::Load load{.count = static_cast<int>(sequences.size())};
  for (const StepPart& part : sequences) {
    const KvSequence& sequence = *part.sequence;
    tokens = std::max(tokens, sequence.length() + part.tokens);
    if (part.mode == StepMode::kPrefill) new_tokens = std::max(new_tokens, part.tokens);
    load.held += sequence.device_bytes();
  }
  hot_rows_.fit(tokens, new_tokens, load, true);
  for (const StepPart& part : sequences) {
    KvSequence& sequence = *part.sequence;
    choose_access(sequence, sequence.length() + part.tokens);
  }
  const DecodeRounds rounds = ensure_step_scratch(sequences);
  for (DescriptorBuffer& slot : streams_.slots()) {
    slot.ensure({.count = sequences.size(), .of_rounds = rounds.descriptors()});
  }
  for (const StepPart& part : sequences) {
    KvSequence& sequence = *part.sequence;
    sequence.reserve(sequence.length() + part.tokens);
  }
  lend(sequences);
  streams_.require(sequences);
  return rounds;
}

void StepMemory::prepare_chunk(const StepPart& chunk, MemoryGuard& guard) {
  drop_pages({&chunk, 1});
  KvSequence& sequence = *chunk.sequence;
  guard.watch(sequence);
  reserve_memories(sequence);
  own_last_page(sequence);
  const int64_t tokens = sequence.length() + chunk.tokens;
  hot_rows_.fit(tokens, 1, {.count = 1, .held = sequence.device_bytes()}, true);
  choose_access(sequence, tokens);
  for (DescriptorBuffer& slot : streams_.slots()) slot.ensure(1);
  // In parts, because rows of layers with a window leave behind the chunk, but only whole slabs.
  constexpr int64_t kPart = 512;
  const int64_t first = engine_.settings().has_window_rows() ? sequence.length() + kPart : tokens;
  for (int64_t part = first; part < tokens; part += kPart) sequence.reserve(part);
  sequence.reserve(tokens);
  streams_.require({&chunk, 1});
}

// Prefill and append-only sequences have no sets to name the rows they read. A tail is made from
// the last page.
void StepMemory::load_for(std::span<const StepPart> sequences) {
  for (const StepPart& part : sequences) {
    const KvSequence& sequence = *part.sequence;
    const int64_t pages = pages_of(sequence.length());
    sequence.rows().load(pages - 1, pages);
    if (part.mode == StepMode::kDecode) continue;
    while (!sequence.rows().load_more(SIZE_MAX)) continue;
  }
}

bool StepMemory::reclaim(MemorySpace space, size_t bytes) {
  const LeftoversScope leftovers(takes_leftovers_);
  if (space == MemorySpace::kDevice && engine_.scratch().wide_bytes() > 0) {
    streams_.wait_for_step();
    engine_.scratch().narrow_waves();
    return true;
  }
  if (hot_rows_.reclaim(space, bytes)) {
    describe_again();
    return true;
  }
  return reclaim_copies(space, bytes);
}

bool StepMemory::reclaim_copies(MemorySpace space, size_t bytes) {
  const LeftoversScope leftovers(takes_leftovers_);
  if (!sequences_.store().reclaim(space, bytes)) return false;
  describe_again();
  return true;
}

// An open step goes on with the hot rows and copies that its sequences still have. Streams are
// idle; its restore has run.
void StepMemory::describe_again() {
  if (!streams_.step()) return;
  const StreamView control = engine_.control();
  OpenStep& step = *streams_.step();
  const auto describe = [](const SequenceDesc& now, SequenceDesc& desc) {
    desc.hot = now.hot;
    desc.hot_table = now.hot_table;
    desc.hot_rows = now.hot_rows;
    desc.device_row_blocks = now.device_row_blocks;
    desc.device_row_pages = now.device_row_pages;
  };
  auto& descs = step.slot->host(DescriptorBuffer::kStep);
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    KvSequence& sequence = *step.sequences[i].sequence;
    sequence.upload_tables(control);
    if (HotRows* const hot = sequence.rows().hot_rows()) hot->prepare(control);
    describe(sequence.describe(), descs[i]);
    step.tables.rows[i] = sequence.rows().view();
  }
  auto& of_rounds = step.slot->host(DescriptorBuffer::kRounds);
  for (size_t i = 0; i < of_rounds.size(); ++i) {
    const size_t member = step.round_members[i];
    if (of_rounds[i].tokens > 0) describe(descs[member], of_rounds[i]);
    const size_t places = step.rounds.front().rows.size();
    step.rounds[i / places].rows[i % places] = step.tables.rows[member];
  }
  step.slot->upload(control);
  engine_.device().synchronize(control);
}

}  // namespace fasa
