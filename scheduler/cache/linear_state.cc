#include "scheduler/cache/linear_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {

const std::shared_ptr<const LinearState::Snapshot>* LinearState::find(int64_t tokens) const {
  const auto found = std::find_if(snapshots_.begin(), snapshots_.end(),
                                  [&](const auto& one) { return one->tokens == tokens; });
  return found == snapshots_.end() ? nullptr : &*found;
}

int64_t LinearState::resume_point(int64_t tokens) const {
  if (tokens >= tokens_ && known()) return tokens_;
  int64_t best = 0;
  for (const auto& snapshot : snapshots_) {
    if (snapshot->tokens <= tokens) best = std::max(best, snapshot->tokens);
  }
  return best;
}

void LinearState::truncate(int64_t tokens) {
  if (tokens == tokens_ && known()) return;
  std::erase_if(snapshots_, [&](const auto& one) { return one->tokens > tokens; });
  const auto* const snapshot = find(tokens);
  live_ = false;
  source_ = snapshot == nullptr ? nullptr : *snapshot;
  open_ = source_ == nullptr ? 0 : source_->open;
  tokens_ = tokens;
  while (!runs_.empty() && (runs_.size() == 1 ? 0 : runs_[runs_.size() - 2].end) >= tokens) {
    runs_.pop_back();
  }
  if (!runs_.empty()) runs_.back().end = tokens;
}

LinearState LinearState::fork(int64_t tokens, StreamView stream) const {
  LinearState other(*device_, *layout_);
  other.snapshots_ = snapshots_;
  other.runs_ = runs_;
  other.tokens_ = tokens_;
  other.open_ = open_;
  other.source_ = source_;
  if (tokens < tokens_) {
    other.truncate(tokens);
  } else if (live_ && tokens > 0) {
    const auto* const snapshot = find(tokens);
    other.source_ = snapshot != nullptr ? *snapshot : copy_now(stream);
  }
  return other;
}

void LinearState::reserve() {
  if (memory_) return;
  memory_ = device_->allocate(MemorySpace::kDevice, static_cast<size_t>(layout_->bytes()),
                              "state of layers with linear attention");
}

std::shared_ptr<LinearState::Snapshot> LinearState::allocate(int64_t tokens, int open) const {
  const int64_t layer = open > 0 ? layout_->layer_bytes() : layout_->cut_bytes();
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->tokens = tokens;
  snapshot->open = open;
  snapshot->memory =
      device_->allocate(MemorySpace::kHost, static_cast<size_t>(layout_->shape().layers * layer),
                        "snapshot of a state");
  return snapshot;
}

// Waits, because snapshots are shared by forks and may leave at once. Rare: at the ends of turns,
// every kInterval tokens, and after a truncation.
void LinearState::copy_layers(std::byte* to, int64_t to_stride, const std::byte* from,
                              int64_t from_stride, int64_t bytes, CopyKind kind,
                              StreamView stream) const {
  for (int layer = 0; layer < layout_->shape().layers; ++layer) {
    device_->copy(to + layer * to_stride, from + layer * from_stride, static_cast<size_t>(bytes),
                  kind, stream);
  }
  device_->synchronize(stream);
}

std::shared_ptr<const LinearState::Snapshot> LinearState::copy_now(StreamView stream) const {
  std::shared_ptr<Snapshot> snapshot = allocate(tokens_, open_);
  const int64_t bytes = open_ > 0 ? layout_->layer_bytes() : layout_->cut_bytes();
  copy_layers(snapshot->memory.data(), bytes, memory_.data(), layout_->layer_bytes(), bytes,
              CopyKind::kDeviceToHost, stream);
  return snapshot;
}

void LinearState::load(const Snapshot& snapshot, StreamView stream) {
  const int64_t bytes = snapshot.open > 0 ? layout_->layer_bytes() : layout_->cut_bytes();
  copy_layers(memory_.data(), layout_->layer_bytes(), snapshot.memory.data(), bytes, bytes,
              CopyKind::kHostToDevice, stream);
  live_ = true;
}

void LinearState::add(std::shared_ptr<const Snapshot> snapshot) {
  if (find(snapshot->tokens) != nullptr) return;
  const auto after = std::find_if(snapshots_.begin(), snapshots_.end(),
                                  [&](const auto& one) { return one->tokens > snapshot->tokens; });
  snapshots_.insert(after, std::move(snapshot));
}

// Keeps those at intervals, and of the others the last kTurns.
void LinearState::drop_old(int64_t rollback_tokens) {
  size_t turns = 0;
  for (size_t i = snapshots_.size(); i-- > 0;) {
    if (snapshots_[i]->tokens % kInterval == 0 || ++turns <= kTurns) continue;
    snapshots_.erase(snapshots_.begin() + static_cast<ptrdiff_t>(i));
  }
  if (rollback_tokens < 0) return;
  // One at or before the window's beginning is enough.
  const int64_t begin = tokens_ - rollback_tokens;
  while (snapshots_.size() > 1 && snapshots_[1]->tokens <= begin) {
    snapshots_.erase(snapshots_.begin());
  }
}

// Without memory there is no snapshot, and more tokens are computed again after a truncation.
void LinearState::keep_turn(const Step& step, StreamView stream) {
  if (step.rollback_tokens == 0 || tokens_ == 0) return;
  if (runs_.back().decoded == step.decodes && tokens_ % kInterval != 0) return;
  if (find(tokens_) != nullptr) return;
  try {
    add(source_ != nullptr ? source_ : copy_now(stream));
  } catch (const BudgetError&) {
    return;
  }
  drop_old(step.rollback_tokens);
}

LinearPart LinearState::begin(const Step& step, StreamView stream) {
  if (!known()) {
    throw UsageError(fmt::format(
        "an aborted step left no state of the layers with linear attention at {} tokens; truncate "
        "the sequence to {} (resume_point) and compute the rest again",
        tokens_, resume_point(tokens_)));
  }
  if (!live_ && source_ != nullptr) load(*source_, stream);
  keep_turn(step, stream);
  LinearPart part{.first = step.first,
                  .tokens = step.tokens,
                  .decodes = step.decodes,
                  .position = tokens_,
                  .open = open_,
                  .state = memory_.data()};
  cut_.reset();
  const int64_t cut = (tokens_ + step.tokens) / kInterval * kInterval;
  if (!step.decodes && cut > tokens_ && step.rollback_tokens != 0) {
    try {
      cut_ = allocate(cut, 0);
      part.saved = cut_->memory.data();
      part.saved_at = cut;
    } catch (const BudgetError&) {  // as in keep_turn()
    }
  }
  step_ = step;
  return part;
}

void LinearState::commit() {
  const int64_t begin = tokens_ - open_;
  tokens_ += step_->tokens;
  const int64_t cut = tokens_ / kLinearBlock * kLinearBlock;
  open_ = step_->decodes ? 0 : static_cast<int>(tokens_ - std::max(cut, begin));
  live_ = true;
  source_.reset();
  if (cut_ != nullptr) add(std::exchange(cut_, nullptr));
  if (runs_.empty() || runs_.back().decoded != step_->decodes) {
    runs_.push_back({.decoded = step_->decodes});
  }
  runs_.back().end = tokens_;
  step_.reset();
}

void LinearState::abort(bool computed) {
  cut_.reset();
  step_.reset();
  if (!computed) return;
  live_ = false;
  if (source_ == nullptr) {
    const auto* const snapshot = find(tokens_);
    if (snapshot != nullptr) source_ = *snapshot;
  }
}

uint64_t LinearState::host_bytes() const {
  uint64_t bytes = 0;
  for (const auto& snapshot : snapshots_) bytes += snapshot->memory.bytes();
  if (source_ != nullptr && find(source_->tokens) == nullptr) bytes += source_->memory.bytes();
  return bytes;
}

}  // namespace fasa
