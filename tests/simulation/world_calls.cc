// The operations of a simulation run other than steps.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"
#include "tests/simulation/world.h"

namespace fasa::testing {
namespace {

constexpr size_t kMaxSequences = 6;

}  // namespace

void World::create(Draw& draw) {
  if (sequences_.size() >= kMaxSequences) return;
  SequenceId id{};
  last_ = "create";
  if (attempt(draw, last_, [&] { id = runtime_->create(); }) != Outcome::kDone) return;
  sequences_.push_back({.id = id});
  if (setup_.rollback_windows) set_rollback(draw, sequences_.back());
}

void World::set_rollback(Draw& draw, Sequence& sequence) {
  const int64_t tokens = draw.of({-1, 0, 1, 5, 40, 64, 100, 300, kMaxTokens});
  if (tokens < 0) return;
  runtime_->set_rollback_tokens(sequence.id, tokens);
  sequence.rollback = tokens;
  sequence.promised = 0;
  last_ += fmt::format(", rollback window of {}: {}", index_of(sequence.id), tokens);
}

void World::fork(Draw& draw) {
  const Sequence* parent = pick(draw);
  if (parent == nullptr || sequences_.size() >= kMaxSequences) return;
  const auto length = static_cast<int64_t>(parent->history.size());
  int64_t tokens = draw.one_in(3) ? length : draw.between(0, length);
  if (has_states() && !draw.one_in(6)) tokens = runtime_->resume_point(parent->id, tokens);
  SequenceId id{};
  last_ = fmt::format("fork of {} at {} of {}", index_of(parent->id), tokens, length);
  const SequenceId from = parent->id;
  const auto call = [&] { id = runtime_->fork(from, tokens); };
  if (refuses_rollback(*parent, tokens, call)) return;
  const Outcome outcome = attempt(draw, last_, call);
  if (outcome != Outcome::kDone) return;
  Sequence child{.id = id,
                 .history = {parent->history.begin(), parent->history.begin() + tokens},
                 .decoded = {parent->decoded.begin(), parent->decoded.begin() + tokens},
                 .pages = parent->pages,
                 .rollback = parent->rollback,
                 .rollback_from = tokens > 0 ? parent->rollback_from : 0,
                 .busy = parent->busy};
  cut_pages(child);
  sequences_.push_back(std::move(child));
  forget_promises();
}

void World::truncate(Draw& draw) {
  Sequence* sequence = pick(draw);
  if (sequence == nullptr) return;
  const auto length = static_cast<int64_t>(sequence->history.size());
  int64_t tokens =
      draw.one_in(2) ? std::max<int64_t>(0, length - draw.between(0, 9)) : draw.between(0, length);
  if (has_states() && !draw.one_in(6)) tokens = runtime_->resume_point(sequence->id, tokens);
  last_ = fmt::format("truncate {} from {} to {}", index_of(sequence->id), length, tokens);
  const auto call = [&] { runtime_->truncate(sequence->id, tokens); };
  if (refuses_rollback(*sequence, tokens, call)) return;
  const Outcome outcome = attempt(draw, last_, call);
  if (outcome != Outcome::kDone) return;
  sequence->history.resize(static_cast<size_t>(tokens));
  sequence->decoded.resize(static_cast<size_t>(tokens));
  if (tokens == 0) sequence->rollback_from = 0;
  cut_pages(*sequence);
  forget_promises();
}

void World::free(Draw& draw) {
  const Sequence* sequence = pick(draw, true);
  if (sequence == nullptr) return;
  last_ = fmt::format("free {}", index_of(sequence->id));
  const SequenceId id = sequence->id;
  if (attempt(draw, last_, [&] { runtime_->free(id); }) != Outcome::kDone) return;
  if (in_chunk(id)) chunk_.reset();
  std::erase_if(sequences_, [&](const Sequence& one) { return one.id == id; });
}

void World::reserve(Draw& draw) {
  Sequence* sequence = pick(draw);
  if (sequence == nullptr) return;
  const auto length = static_cast<int64_t>(sequence->history.size());
  const int64_t growth = setup_.rollback_windows && draw.one_in(3) ? kMaxTokens : 150;
  const int64_t tokens = std::min(setup_.max_tokens, length + draw.between(0, growth));
  const int step_tokens = static_cast<int>(draw.between(1, 80));
  last_ = fmt::format("reserve {} tokens for {}", tokens, index_of(sequence->id));
  if (setup_.rollback_windows && draw.one_in(4)) set_rollback(draw, *sequence);
  copies_pages_ = writes_shared_page(*sequence);
  const Outcome outcome =
      attempt(draw, last_, [&] { runtime_->reserve(sequence->id, tokens, step_tokens); });
  sequence->busy |= std::exchange(copies_pages_, false);
  if (outcome != Outcome::kDone) return;
  forget_promises();
  if (tokens > length && writes_shared_page(*sequence)) {
    sequence->pages[sequence->history.size() / kPageTokens] = next_page_++;
  }
  sequence->promised = tokens;
}

// Another user takes all or nearly all free memory.
void World::squeeze(Draw& draw) {
  const MemorySpace space = draw.one_in(3) ? MemorySpace::kHost : MemorySpace::kDevice;
  const MemoryUse use = stepped_->memory(space);
  if (use.limit_bytes == UINT64_MAX || squeezes_.size() > 4) return;
  const int64_t left = draw.of({0, 0, 1000, 5000, 20000, 50000, 100000});
  const auto room = static_cast<int64_t>(use.limit_bytes - use.used_bytes);
  if (room <= left) return;
  last_ = fmt::format("somebody else takes all but {} bytes of {} memory", left,
                      space == MemorySpace::kDevice ? "device" : "host");
  squeezes_.push_back(device_->allocate(space, static_cast<size_t>(room - left), "others"));
}

void World::release(Draw& draw) {
  if (squeezes_.empty()) return;
  last_ = "somebody else gives memory back";
  squeezes_.erase(squeezes_.begin() + draw.below(static_cast<int64_t>(squeezes_.size())));
}

void World::read(Draw& draw) {
  Sequence* sequence = pick(draw);
  if (sequence == nullptr || sequence->history.empty()) return;
  const Geometry& g = setup_.geometry;
  const auto length = static_cast<int64_t>(sequence->history.size());
  const int layer = static_cast<int>(draw.below(g.layers));
  const int64_t first = draw.below(length);
  const int64_t tokens = draw.between(1, length - first);
  const HeadShape heads = g.heads(layer);
  const auto key_width = static_cast<size_t>(heads.kv_heads * heads.key_dim);
  const auto value_width = static_cast<size_t>(heads.kv_heads * heads.value_dim);
  std::vector<float> k(static_cast<size_t>(tokens) * key_width);
  std::vector<float> v(static_cast<size_t>(tokens) * value_width);
  last_ = fmt::format("read {} to {} of {}, layer {}", first, first + tokens - 1,
                      index_of(sequence->id), layer);
  sequence->busy = true;
  try {
    runtime_->read(
        sequence->id, layer, first,
        TensorView::dense(k.data(), DType::kF32, tokens, heads.kv_heads, heads.key_dim),
        TensorView::dense(v.data(), DType::kF32, tokens, heads.kv_heads, heads.value_dim),
        compute_.view());
    device_->synchronize(compute_.view());
  } catch (const UsageError&) {
    const bool whole = g.windows.empty() || g.windows[static_cast<size_t>(layer)] == 0;
    if (whole || first >= sequence->rollback_from) mismatch("the pages to read were freed");
    last_ += ", refused";
    return;
  } catch (const DeviceError& error) {
    if (failed_late()) return;
    mismatch(fmt::format("read failed for no reason: {}", error.what()));
  }
  std::vector<float> keys, values;
  plain_.read(sequence->history, layer, &keys, &values);
  const auto from = static_cast<size_t>(first);
  if (std::memcmp(k.data(), keys.data() + from * key_width, k.size() * sizeof(float)) != 0 ||
      std::memcmp(v.data(), values.data() + from * value_width, v.size() * sizeof(float)) != 0) {
    mismatch("rows that were read back are not those that were stored");
  }
}

void World::look_at_metrics(Draw& draw) {
  last_ = "metrics";
  FetchMetrics metrics;
  if (attempt(draw, last_, [&] { metrics = runtime_->metrics(); }) != Outcome::kDone) return;
  nothing_is_under_way();
  if (metrics.rows.prefetched_used > metrics.rows.prefetched) {
    mismatch("more predicted rows were used than were fetched");
  }
  digest_.add(metrics.rows.hits);
  digest_.add(metrics.rows.misses);
}

}  // namespace fasa::testing
