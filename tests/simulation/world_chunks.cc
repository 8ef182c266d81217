// Prompts of a simulation run that go layer by layer: opened, worked on, dropped and freed between
// the steps of others.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "tests/simulation/world.h"

namespace fasa::testing {

void World::work_on_chunk(Draw& draw) {
  if (!chunk_) return open_chunk(draw);
  last_ = fmt::format("chunk of {}, layer {} from {}", index_of(chunk_->step->parts[0].id),
                      chunk_->attention.layer, chunk_->attention.done);
  if (has_states()) {
    last_ += fmt::format(", linear layer {} from {}", chunk_->linear.layer, chunk_->linear.done);
  }
  if (draw.one_in(12)) return drop_chunk();
  const auto attends = [&] { return chunk_->attention.layer < setup_.geometry.layers; };
  const auto advances = [&] { return chunk_->linear.layer < linear_.layers(); };
  const int64_t pieces = draw.between(1, 8);
  for (int64_t i = 0; i < pieces && (attends() || advances()); ++i) {
    const bool linear = advances() && (!attends() || draw.one_in(2));
    if (!work_on_piece(draw, linear)) return;
  }
  if (!attends() && !advances()) close_chunk();
}

void World::open_chunk(Draw& draw) {
  Sequence* sequence = pick(draw);
  if (sequence == nullptr) return;
  Part part{.id = sequence->id, .history = sequence->history, .decoded = sequence->decoded};
  part.start = static_cast<int64_t>(part.history.size());
  part.mode = StepMode::kPrefill;
  const int64_t tokens = std::min(draw.between(1, 200), setup_.max_tokens - part.start);
  if (tokens <= 0) return;
  const auto writer = static_cast<uint8_t>(draw.below(kWriters));
  part.history.insert(part.history.end(), static_cast<size_t>(tokens), writer);
  part.decoded.resize(part.history.size(), 0);
  auto step = std::make_unique<Step>();
  step->tokens = tokens;
  step->parts.push_back(std::move(part));
  write_tensors(*step);
  for (int layer = 0; layer < linear_.layers(); ++layer) {
    step->linear.emplace_back(static_cast<size_t>(tokens) * linear_.token_bytes());
  }
  last_ = fmt::format("chunk of {} opened, {} +{}", index_of(sequence->id),
                      sequence->history.size(), tokens);
  if (sequence->rollback >= 0) {
    sequence->rollback_from =
        std::max(sequence->rollback_from, step->parts[0].start - sequence->rollback);
  }
  copies_pages_ = writes_shared_page(*sequence);
  const SequenceId id = sequence->id;
  const Outcome opened = attempt(
      draw, "open_chunk", [&] { runtime_->prompts().open_chunk(id, static_cast<int>(tokens)); });
  sequence->busy = true;
  const bool copied = std::exchange(copies_pages_, false);
  if (opened != Outcome::kDone) return;
  forget_promises();
  if (setup_.rollback_windows) require_freed_pages(*sequence);
  if (copied) sequence->pages[sequence->history.size() / kPageTokens] = next_page_++;
  chunk_ = Chunk{.step = std::move(step)};
}

bool World::work_on_piece(Draw& draw, bool linear) {
  const Step& step = *chunk_->step;
  Chunk::Progress& progress = linear ? chunk_->linear : chunk_->attention;
  const int64_t tokens = std::min(step.tokens - progress.done,
                                  draw.one_in(2) ? draw.between(1, 20) : draw.between(1, 200));
  find(step.parts[0].id).busy = true;
  try {
    linear ? advance_piece(tokens) : attend_piece(tokens);
    runtime_->prompts().end_piece();
  } catch (const BudgetError&) {
    drop_chunk();  // descriptors were lost when a step of others was refused
    return false;
  } catch (const DeviceError& error) {
    if (!failed_late()) mismatch(fmt::format("a piece failed for no reason: {}", error.what()));
    drop_chunk();
    return false;
  }
  progress.done += tokens;
  if (progress.done == step.tokens) progress = {.layer = progress.layer + 1, .done = 0};
  return true;
}

void World::attend_piece(int64_t tokens) {
  const Geometry& g = setup_.geometry;
  Step& step = *chunk_->step;
  const int layer = chunk_->attention.layer;
  Layer& tensors = step.layers[static_cast<size_t>(layer)];
  const HeadShape heads = g.heads(layer);
  const int64_t first = chunk_->attention.done;
  const auto part = [&](auto& tensor, int count, int dim) {
    return tensor.data() + first * count * dim;
  };
  const auto input = [&](const std::vector<float>& tensor, int count, int dim) {
    return ConstTensorView::dense(part(tensor, count, dim), DType::kF32, tokens, count, dim);
  };
  runtime_->prompts().begin_piece(step.parts[0].id, layer, static_cast<int>(tokens));
  if (!g.is_shared(layer)) {
    runtime_->append(layer, input(tensors.k, heads.kv_heads, heads.key_dim),
                     input(tensors.v, heads.kv_heads, heads.value_dim), compute_.view());
  }
  runtime_->attend(layer, input(tensors.q, g.query_heads, heads.key_dim),
                   TensorView::dense(part(tensors.out, g.query_heads, heads.value_dim), DType::kF32,
                                     tokens, g.query_heads, heads.value_dim),
                   part(tensors.lse, g.query_heads, 1), compute_.view());
}

void World::advance_piece(int64_t tokens) {
  Step& step = *chunk_->step;
  const Chunk::Progress at = chunk_->linear;
  runtime_->prompts().begin_linear_piece(step.parts[0].id, at.layer, static_cast<int>(tokens),
                                         compute_.view());
  enqueue_linear(step, at.layer, at.done, tokens);
}

void World::close_chunk() {
  last_ += ", closed";
  try {
    runtime_->prompts().close_chunk(chunk_->step->parts[0].id);
  } catch (const DeviceError& error) {
    if (!failed_late()) mismatch(fmt::format("close_chunk failed: {}", error.what()));
    return drop_chunk();
  }
  commit(std::move(chunk_->step));
  chunk_.reset();
}

void World::drop_chunk() {
  last_ += ", dropped";
  runtime_->prompts().drop_chunk(chunk_->step->parts[0].id);
  stepped_->run_until_idle();  // its tensors are read until then
  chunk_.reset();
}

}  // namespace fasa::testing
