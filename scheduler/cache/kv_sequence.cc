#include "scheduler/cache/kv_sequence.h"

#include <utility>

#include "offload/store/open_store.h"

namespace fasa {
namespace {

using Memories = std::vector<std::unique_ptr<SequenceMemory>>;

template <typename Memory, typename... Arguments>
Memory* add(Memories& memories, Arguments&&... arguments) {
  auto memory = std::make_unique<Memory>(std::forward<Arguments>(arguments)...);
  Memory* const made = memory.get();
  memories.push_back(std::move(memory));
  return made;
}

template <typename Work>
void undo_if_it_throws(KvSequence& sequence, const Work& work) {
  const KvSequence::Mark before = sequence.mark();
  try {
    work();
  } catch (...) {
    sequence.back_to(before);
    throw;
  }
}

}  // namespace

KvStores::KvStores(Device& device, const StepSettings& settings, Fences& fences)
    : slices(device, MemorySpace::kDevice, static_cast<size_t>(settings.layout.slice_block_bytes()),
             "slices", &fences),
      linear(settings.linear),
      passing(fences) {
  rows.push_back(
      open_store(settings.rows, device, settings.group(), fences, settings.max_hot_rows));
  if (!settings.has_window_rows()) return;
  rows.push_back(
      std::make_unique<LocalStore>(device, settings.window_group(), fences, "window rows"));
}

Fence KvStores::take_fence() noexcept {
  Fence last = slices.take_fence();
  for (const auto& store : rows) last = std::max(last, store->take_fence());
  return last;
}

void KvStores::trim() noexcept {
  slices.trim();
  for (const auto& store : rows) store->trim();
}

KvSequence::KvSequence(const StepSettings& settings, KvStores& stores)
    : rollback(*this, settings.rollback_tokens),
      settings_(settings),
      slices_(stores.slices, settings.layout) {
  for (const auto& store : stores.rows) rows_.push_back(store->open());
  if (settings.selection_evicts) history_ = add<SelectionHistory>(memories_, settings);
  if (settings.linear.layers > 0) {
    linear_ = add<LinearState>(memories_, stores.slices.device(), stores.linear, settings.snapshots,
                               &stores.passing);
  }
}

SequenceRows& KvSequence::rows_of(int layer) const {
  return settings_.layer(layer).in_window_rows ? *window_rows() : rows();
}

void KvSequence::share(const KvSequence& other, int64_t tokens, const Stream& control) {
  for (size_t i = 0; i < memories_.size(); ++i) {
    memories_[i]->share(*other.memories_[i], tokens, control);
  }
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i]->share(*other.rows_[i], tokens);
  // A short fork begins without slices.
  const bool copied = rows().copied() && !rows().outgrows_copies(tokens);
  slices_.share(other.slices_, tokens,
                other.slices_.coded() && (!copied || !settings_.selects_all(tokens)));
  length_ = tokens;
  rollback.set_tokens(other.rollback.tokens());
  work_ = other.work_;
  invalidate();
}

void KvSequence::takes_part(size_t slot, Fence step) {
  work_.steps[slot] = step;
  for (const auto& rows : rows_) rows->used_by(step);
  slices_.used_by(step);
}

void KvSequence::takes_part(Fence control) {
  work_.control = control;
  for (const auto& rows : rows_) rows->used_by(control);
  slices_.used_by(control);
}

Fence KvSequence::overwritten() const {
  const bool overwrites =
      std::any_of(rows_.begin(), rows_.end(), [](const auto& rows) { return rows->overwrites(); });
  return overwrites ? work_.last() : Fence{};
}

void KvSequence::truncate(int64_t tokens) {
  for (const auto& memory : memories_) memory->truncate(tokens);
  if (tokens >= length_) return;
  for (const auto& rows : rows_) rows->truncate(tokens);
  slices_.truncate(tokens);
  length_ = tokens;
  invalidate();
}

void KvSequence::invalidate() {
  for (const auto& rows : rows_) rows->invalidate(length_);
  stale_ = length_ > 0;
}

void KvSequence::begin(int64_t tokens, StepMode mode, bool undoable, const Stream& control) {
  for (const auto& memory : memories_) {
    memory->begin({.position = length_,
                   .tokens = tokens,
                   .decodes = mode == StepMode::kDecode,
                   .undoable = undoable,
                   .rollback_tokens = rollback.tokens()},
                  control);
  }
}

void KvSequence::commit(int64_t tokens) {
  length_ += tokens;
  for (const auto& memory : memories_) memory->commit(tokens);
}

void KvSequence::abort(bool computed) {
  invalidate();
  for (const auto& memory : memories_) memory->abort(length_, computed);
}

void KvSequence::drop_pages() {
  if (rollback.droppable() == 0) return;
  for (const auto& rows : rows_) {
    const int64_t oldest = rollback.oldest_cut(*rows);
    if (rows->droppable(oldest) == 0) continue;
    const int64_t end = rows->group().retention.first_needed_page(oldest);
    if (rows == rows_.front()) {
      for (const PageRange range : rows->retained().droppable_before(end))
        slices_.drop(range.first, range.end);
    }
    rows->drop_until(end);
  }
}

void KvSequence::read_over_link() {
  rows().read_over_link(length_);
  stale_ = length_ > 0;
}

// Sequences that drop rows make slices from the start.
void KvSequence::grow_slices(int64_t tokens) {
  if (!slices_.used()) return;
  const bool needed = slices_.coded() || !rows().copied() || !settings_.selects_all(tokens) ||
                      rows().group().retention.frees(rollback.tokens());
  if (!needed) return;
  if (length_ == 0) slices_.set_coded();
  slices_.grow(tokens);
}

void KvSequence::reserve_slices() {
  if (!slices_.used()) return;
  undo_if_it_throws(*this, [&] { slices_.grow(length_); });
}

void KvSequence::reserve(int64_t tokens, int64_t first_window_page) {
  undo_if_it_throws(*this, [&] {
    grow_slices(tokens);
    for (const auto& rows : rows_) {
      rows->grow(tokens, rows.get() == window_rows() ? first_window_page : 0);
    }
  });
}

void KvSequence::reserve_steps(int64_t tokens, int step_tokens) {
  const auto max_pages = [&](const SequenceRows& rows) {
    return rows.group().retention.max_pages(tokens, step_tokens, rollback.tokens());
  };
  undo_if_it_throws(*this, [&] {
    reserve_memories();
    const int64_t of_main = max_pages(rows());
    const bool frees = of_main < pages_of(tokens);
    grow_slices(frees ? length_ : tokens);
    if (frees && slices_.used()) slices_.promise(tokens, of_main);
    for (const auto& rows : rows_) {
      const int64_t pages = max_pages(*rows);
      rows->grow(pages < pages_of(tokens) ? length_ : tokens);
      if (pages < pages_of(tokens)) rows->promise(tokens, pages);
    }
  });
}

void KvSequence::reserve_memories() {
  for (const auto& memory : memories_) memory->reserve();
}

KvSequence::Mark KvSequence::mark() const {
  Mark mark{.rows = {}, .slices = slices_.mark(), .reserved = {}};
  for (const auto& memory : memories_) mark.reserved.push_back(memory->reserved());
  for (size_t i = 0; i < rows_.size(); ++i) mark.rows[i] = rows_[i]->mark();
  return mark;
}

void KvSequence::back_to(const Mark& mark) noexcept {
  bool lost = slices_.back_to(mark.slices);
  for (size_t i = 0; i < rows_.size(); ++i) lost |= rows_[i]->back_to(mark.rows[i], length_);
  if (lost) stale_ = length_ > 0;
  for (size_t i = 0; i < memories_.size(); ++i) memories_[i]->back_to(mark.reserved[i]);
}

void KvSequence::retake(const Mark& mark) noexcept {
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i]->retake(mark.rows[i]);
}

uint64_t KvSequence::device_bytes() const {
  uint64_t bytes = slices_.bytes();
  for (const auto& rows : rows_) {
    const RowMemory memory = rows->memory();
    bytes += memory.copies + memory.hot_rows;
  }
  for (const auto& memory : memories_) bytes += memory->device_bytes();
  return bytes;
}

bool KvSequence::reserve_private_page() {
  bool needed = false;
  undo_if_it_throws(*this, [&] {
    for (const auto& rows : rows_) needed |= rows->reserve_private_page(length_);
  });
  return needed;
}

void KvSequence::make_last_page_private(StreamView control) {
  for (const auto& rows : rows_) rows->make_private(length_, control);
}

void KvSequence::upload_tables(StreamView control) {
  for (const auto& rows : rows_) rows->upload(control);
  slices_.upload(control);
}

void KvSequence::prepare(int tokens, StreamView control) {
  for (const auto& rows : rows_) rows->prepare(length_, tokens, control);
}

std::optional<SequenceDesc> KvSequence::code_slices() {
  if (!slices_.must_be_coded()) return {};
  slices_.set_coded();
  if (length_ == 0) return {};
  SequenceDesc desc = describe();
  rows().describe_in_place(length_, &desc);
  desc.mode = StepMode::kPrefill;
  desc.start = 0;
  desc.tokens = static_cast<int32_t>(length_);
  return desc;
}

SequenceDesc KvSequence::describe() const {
  SequenceDesc desc;
  desc.mode = StepMode::kDecode;
  desc.start = static_cast<int32_t>(length_);
  rows().describe(&desc);
  slices_.describe(&desc);
  return desc;
}

}  // namespace fasa
