#include "scheduler/cache/linear_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/held_snapshot.h"

namespace fasa {

const std::shared_ptr<const LinearState::Snapshot>* LinearState::find(int64_t tokens) const {
  const auto found = std::find_if(snapshots_.begin(), snapshots_.end(),
                                  [&](const auto& one) { return one->point.tokens == tokens; });
  return found == snapshots_.end() ? nullptr : &*found;
}

int64_t LinearState::resume_point(int64_t tokens) const {
  if (tokens >= tokens_ && known()) return tokens_;
  int64_t best = 0;
  for (const auto& snapshot : snapshots_) {
    if (snapshot->point.tokens <= tokens) best = std::max(best, snapshot->point.tokens);
  }
  return best;
}

void LinearState::truncate(int64_t tokens) {
  imported_ = 0;
  if (tokens == tokens_ && known()) return;
  std::erase_if(snapshots_, [&](const auto& one) { return one->point.tokens > tokens; });
  const auto* const snapshot = find(tokens);
  live_ = false;
  source_ = snapshot == nullptr ? nullptr : *snapshot;
  open_ = source_ == nullptr ? 0 : source_->point.open;
  decoded_ = source_ != nullptr && source_->point.decoded;
  tokens_ = tokens;
  if (held_ > tokens) held_ = 0;
}

void LinearState::share(const SequenceMemory& parent, int64_t tokens, const Stream& stream) {
  const auto& other = static_cast<const LinearState&>(parent);
  snapshots_ = other.snapshots_;
  tokens_ = other.tokens_;
  open_ = other.open_;
  decoded_ = other.decoded_;
  marked_ = other.marked_;
  held_ = other.held_;
  source_ = other.source_;
  if (tokens < tokens_) {
    truncate(tokens);
  } else if (other.live_ && tokens > 0) {
    const auto* const snapshot = find(tokens);
    source_ = snapshot != nullptr ? *snapshot : other.copy_now(stream);
  }
}

void LinearState::reserve() {
  if (memory_) return;
  memory_ = device_->allocate(MemorySpace::kDevice, static_cast<size_t>(layout_->bytes()),
                              "state of layers with linear attention");
}

void LinearState::back_to(bool reserved) noexcept {
  cuts_.clear();
  if (reserved) return;
  live_ = false;
  imported_ = 0;
  memory_ = {};
}

StatePoint LinearState::point(int64_t tokens, int open, bool decoded) const {
  return {tokens, open, decoded, static_cast<uint64_t>(layout_->copied_bytes(open))};
}

LinearState::Snapshot::~Snapshot() {
  if (fences == nullptr) return;
  try {
    fences->wait(written);
  } catch (const std::exception&) {
    // Work that failed writes no more.
  }
}

std::shared_ptr<LinearState::Snapshot> LinearState::allocate(const StatePoint& point) const {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->point = point;
  snapshot->memory = device_->allocate(MemorySpace::kHost, point.bytes, "snapshot of a state");
  return snapshot;
}

// Calls work(address in memory_, offset in the range, bytes) for the layers' parts of a range of a
// copy, in which layers follow one another.
template <typename Work>
void LinearState::for_each_layer(int open, size_t offset, size_t bytes, const Work& work) const {
  const auto of_layer = static_cast<size_t>(layout_->copied_layer_bytes(open));
  for (size_t at = offset; at < offset + bytes;) {
    const size_t layer = at / of_layer, within = at % of_layer;
    const size_t count = std::min(of_layer - within, offset + bytes - at);
    const auto begin = static_cast<ptrdiff_t>(layer) * layout_->layer_bytes();
    work(memory_.data() + begin + within, at - offset, count);
    at += count;
  }
}

// Waits, even if it fails, because memory on both sides may leave at once. Rare: at the ends of
// turns, at intervals, and after a truncation.
void LinearState::copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream) const {
  try {
    device_->copy_all(ranges, kind, stream);
  } catch (const Error&) {
    try {
      device_->synchronize(stream);
    } catch (const Error&) {
      // The first failure is reported.
    }
    throw;
  }
  device_->synchronize(stream);
}

std::shared_ptr<const LinearState::Snapshot> LinearState::copy_now(const Stream& stream) const {
  std::shared_ptr<Snapshot> snapshot = allocate(point(tokens_, open_, decoded_));
  copy_out(snapshot->point, 0, {snapshot->memory.data(), snapshot->point.bytes}, stream.view());
  return snapshot;
}

void LinearState::load(const Snapshot& snapshot, StreamView stream) {
  copy_in(snapshot.point, 0, {snapshot.memory.data(), snapshot.point.bytes}, stream);
  live_ = true;
}

void LinearState::copy_out(const StatePoint& point, size_t offset, std::span<std::byte> bytes,
                           StreamView stream) const {
  std::vector<CopyRange> ranges;
  for_each_layer(point.open, offset, bytes.size(),
                 [&](const std::byte* from, size_t at, size_t count) {
                   ranges.push_back({bytes.data() + at, from, count});
                 });
  copy(ranges, CopyKind::kDeviceToHost, stream);
}

void LinearState::copy_in(const StatePoint& point, size_t offset, std::span<const std::byte> bytes,
                          StreamView stream) {
  std::vector<CopyRange> ranges;
  for_each_layer(point.open, offset, bytes.size(), [&](std::byte* to, size_t at, size_t count) {
    ranges.push_back({to, bytes.data() + at, count});
  });
  copy(ranges, CopyKind::kHostToDevice, stream);
}

std::vector<StatePoint> LinearState::points() const {
  std::vector<StatePoint> points;
  for (const auto& snapshot : snapshots_) points.push_back(snapshot->point);
  const bool ends = tokens_ > 0 && known() && find(tokens_) == nullptr;
  if (ends) points.push_back(point(tokens_, open_, decoded_));
  return points;
}

void LinearState::export_state(const StatePoint& point, size_t offset, std::span<std::byte> bytes,
                               StreamView stream) const {
  const std::vector<StatePoint> all = points();
  if (std::find(all.begin(), all.end(), point) == all.end()) {
    throw UsageError(
        fmt::format("export_state at {} tokens; allowed: one of the {} states that states() names",
                    point.tokens, all.size()));
  }
  if (offset > point.bytes || bytes.size() > point.bytes - offset) {
    throw UsageError(fmt::format("export_state of bytes {} to {} of a state; it has {}", offset,
                                 offset + bytes.size(), point.bytes));
  }
  const auto* const snapshot = find(point.tokens);
  if (snapshot != nullptr || !live_) {
    const Snapshot& from = snapshot != nullptr ? **snapshot : *source_;
    std::memcpy(bytes.data(), from.memory.data() + offset, bytes.size());
  } else {
    copy_out(point, offset, bytes, stream);
  }
}

void LinearState::check_import(int64_t length, const StatePoint& point, size_t offset,
                               size_t bytes) const {
  const int most = point.decoded ? kMaxWaiting : kLinearBlock - 1;
  const bool fits = point.open >= 0 && point.open <= most && point.open <= point.tokens &&
                    point.bytes == static_cast<uint64_t>(layout_->copied_bytes(point.open));
  if (!fits) {
    throw UsageError(
        fmt::format("import_state of {} bytes with {} {} tokens: it is no state of "
                    "this model's layers with linear attention on device '{}'",
                    point.bytes, point.open, point.decoded ? "waiting" : "open", device_->name()));
  }
  if (tokens_ != 0 || length != point.tokens) {
    throw UsageError(fmt::format(
        "import_state at {} tokens: the sequence has {}, with a state at {}; allowed: right after "
        "import_pages of all of its tokens",
        point.tokens, length, tokens_));
  }
  if (offset != imported_ || bytes == 0 || bytes > point.bytes - offset) {
    throw UsageError(fmt::format(
        "import_state of bytes {} to {} of {}; allowed: the bytes from {} on, 1 or more", offset,
        offset + bytes, point.bytes, imported_));
  }
}

void LinearState::import_state(int64_t length, const StatePoint& point, size_t offset,
                               std::span<const std::byte> bytes, StreamView stream) {
  check_import(length, point, offset, bytes.size());
  reserve();
  copy_in(point, offset, bytes, stream);
  imported_ = offset + bytes.size();
  if (imported_ < point.bytes) return;
  imported_ = 0;
  tokens_ = point.tokens;
  open_ = point.open;
  decoded_ = point.decoded;
  live_ = true;
}

void LinearState::add(std::shared_ptr<const Snapshot> snapshot) {
  if (find(snapshot->point.tokens) != nullptr) return;
  const auto after = std::find_if(snapshots_.begin(), snapshots_.end(), [&](const auto& one) {
    return one->point.tokens > snapshot->point.tokens;
  });
  snapshots_.insert(after, std::move(snapshot));
}

void LinearState::drop_old(int64_t rollback_tokens) {
  keep_snapshots(
      *rule_, snapshots_, [](const auto& one) { return one->point.tokens; }, held_);
  if (rollback_tokens < 0) return;
  // One at or before the window's beginning is enough.
  const int64_t begin = tokens_ - rollback_tokens;
  for (size_t i = 0; i + 1 < snapshots_.size() && snapshots_[i + 1]->point.tokens <= begin;) {
    if (snapshots_[i]->point.tokens == held_) {
      ++i;
    } else {
      snapshots_.erase(snapshots_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

// Without memory there is no snapshot, and more tokens are computed again after a truncation.
void LinearState::keep_turn(const Step& step, const Stream& stream) {
  if (step.rollback_tokens == 0 || tokens_ == 0 || find(tokens_) != nullptr) return;
  const bool marked = marked_ == tokens_ || held_ == tokens_;
  const int64_t mark = std::max(marked_, held_);
  const bool close_to_mark = find(mark) != nullptr && tokens_ - mark < kMarkTokens;
  const bool turn_ends = decoded_ != step.decodes && !(step.decodes && close_to_mark);
  if (!turn_ends && !marked && tokens_ % rule_->interval != 0) return;
  try {
    add(source_ != nullptr ? source_ : copy_now(stream));
  } catch (const BudgetError&) {
    return;
  }
  drop_old(step.rollback_tokens);
}

void LinearState::begin(const Step& step, const Stream& stream) {
  if (tokens_ != step.position) {
    throw UsageError(fmt::format(
        "a sequence has {} tokens by import_pages, and no state of its layers with linear "
        "attention; call import_state, or truncate it to 0",
        step.position));
  }
  if (!known()) {
    throw UsageError(fmt::format(
        "an aborted step left no state of the layers with linear attention at {} tokens; truncate "
        "the sequence to {} (resume_point) and compute the rest again",
        tokens_, resume_point(tokens_)));
  }
  if (!live_ && source_ != nullptr) load(*source_, stream.view());
  keep_turn(step, stream);
  std::shared_ptr<const Snapshot> before = source_;
  if (step.undoable && tokens_ > 0 && before == nullptr) {
    const auto* const snapshot = find(tokens_);
    before = snapshot != nullptr ? *snapshot : copy_now(stream);
  }
  make_cuts(step);
  source_ = std::move(before);
  if (step.undoable) live_ = false;  // what kernels make of memory_ is the state of no length
  step_ = step;
  drafts_ = step.decodes && step.tokens <= max_drafted() ? step.tokens - 1 : 0;
}

// All that drop_old() would keep; the newest first, while there is memory.
void LinearState::make_cuts(const Step& step) {
  cuts_.clear();
  if (step.decodes || step.rollback_tokens == 0) return;
  const int64_t interval = rule_->interval, end = tokens_ + step.tokens;
  int64_t oldest = tokens_ + 1;
  if (step.rollback_tokens > 0) {
    oldest = std::max(oldest, (end - step.rollback_tokens) / interval * interval);
  }
  try {
    for (int64_t cut = end / interval * interval; cut >= oldest; cut -= interval) {
      cuts_.push_back(allocate(point(cut, 0, false)));
    }
  } catch (const BudgetError&) {  // as in keep_turn()
  }
  std::reverse(cuts_.begin(), cuts_.end());
}

// Tokens of the open block at a length within the step.
int LinearState::open_at(int64_t tokens) const {
  const int open = open_ - waiting();
  if (tokens == tokens_) return open;
  const int64_t cut = tokens / kLinearBlock * kLinearBlock;
  return step_.decodes ? 0 : static_cast<int>(tokens - std::max(cut, tokens_ - open));
}

std::vector<LinearPart> LinearState::parts(int64_t begin, int64_t end, int64_t row) const {
  const auto after = [this](int64_t tokens) {
    return std::find_if(cuts_.begin(), cuts_.end(),
                        [&](const auto& cut) { return cut->point.tokens > tokens; });
  };
  std::vector<LinearPart> parts;
  const int64_t first = tokens_ + begin, last = tokens_ + end;
  for (int64_t at = first; at < last;) {
    LinearPart part{.wave = static_cast<int>(parts.size()),
                    .first = row + at - first,
                    .decodes = step_.decodes,
                    .position = at,
                    .open = open_at(at),
                    .waiting = at == tokens_ ? waiting() : 0,
                    .drafts = drafts_,
                    .state = memory_.data()};
    int64_t stop = last;
    if (const auto cut = after(at); cut != cuts_.end() && (*cut)->point.tokens <= last) {
      part.saved = (*cut)->memory.data();
      part.saved_at = (*cut)->point.tokens;
      const auto next = cut + 1;
      if (next != cuts_.end() && (*next)->point.tokens <= last) stop = part.saved_at;
    }
    part.tokens = stop - at;
    parts.push_back(part);
    at = stop;
  }
  return parts;
}

void LinearState::commit(int64_t tokens) {
  const int64_t waiting = std::max<int64_t>(0, drafts_ - (step_.tokens - tokens));
  open_ = step_.decodes ? static_cast<int>(waiting) : open_at(tokens_ + tokens);
  tokens_ += tokens;
  live_ = true;
  source_.reset();
  if (!cuts_.empty()) {
    for (auto& cut : cuts_) {
      cut->fences = fences_;
      if (fences_ != nullptr) cut->written = fences_->latest();
      add(std::move(cut));
    }
    cuts_.clear();
    drop_old(step_.rollback_tokens);
  }
  decoded_ = step_.decodes;
}

void LinearState::abort(int64_t /*tokens*/, bool computed) {
  cuts_.clear();
  if (!computed) return;
  live_ = false;
  if (source_ == nullptr) {
    const auto* const snapshot = find(tokens_);
    if (snapshot != nullptr) source_ = *snapshot;
  }
}

void LinearState::visit_host_memory(const Visit& visit) const {
  for (const auto& one : snapshots_) visit(one.get(), one->memory.bytes());
  if (source_ != nullptr) visit(source_.get(), source_->memory.bytes());
  for (const auto& one : cuts_) visit(one.get(), one->memory.bytes());
}

}  // namespace fasa
