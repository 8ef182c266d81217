// The steps of a simulation run: several sequences at a time, not waited for, aborted now and then.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"
#include "tests/simulation/noisy_queries.h"
#include "tests/simulation/world.h"

namespace fasa::testing {
namespace {

// Tokens [first, first + count) of a vector that holds `width` floats for each of them.
const float* tokens_at(const std::vector<float>& all, size_t first, size_t width) {
  return all.data() + first * width;
}

}  // namespace

World::Step World::draw_step(Draw& draw) {
  Step step;
  std::vector<size_t> order(sequences_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(draw.below(static_cast<int64_t>(i)))]);
  }
  const auto count = static_cast<size_t>(
      draw.between(1, std::min<int64_t>(4, static_cast<int64_t>(order.size()))));
  const int64_t prefills = draw.of({0, 1, 1, 2});  // of four parts
  for (size_t i = 0; i < count; ++i) {
    const Sequence& sequence = sequences_[order[i]];
    if (in_chunk(sequence.id)) continue;
    Part part{.id = sequence.id, .history = sequence.history, .decoded = sequence.decoded};
    part.start = static_cast<int64_t>(sequence.history.size());
    const bool fills = part.start == 0 || draw.below(4) < prefills;
    part.mode = fills ? StepMode::kPrefill : StepMode::kDecode;
    const int64_t most = setup_.rollback_windows ? 300 : 100;
    const int64_t decoded = setup_.drafts ? drawn_decode(draw, sequence.id) : 1;
    const int64_t wanted = !fills           ? decoded
                           : draw.one_in(3) ? draw.between(1, 8)
                                            : draw.between(1, most);
    const int64_t tokens = std::min(wanted, setup_.max_tokens - part.start);
    if (tokens <= 0) continue;
    const auto writer = static_cast<uint8_t>(draw.below(kWriters));
    part.history.insert(part.history.end(), static_cast<size_t>(tokens), writer);
    part.decoded.resize(part.history.size(), fills ? 0 : 1);
    if (!fills && tokens <= runtime_->info(sequence.id).max_drafted) {
      part.dropped = tokens > 1 ? draw.below(tokens) : 0;
    }
    step.tokens += tokens;
    step.parts.push_back(std::move(part));
  }
  return step;
}

// As many tokens as the next decode step may have, more often as many as it may drop.
int64_t World::drawn_decode(Draw& draw, SequenceId id) const {
  const SequenceInfo info = runtime_->info(id);
  return draw.between(1, draw.one_in(4) ? info.max_decoded : info.max_drafted);
}

void World::write_tensors(Step& step) {
  const Geometry& g = setup_.geometry;
  const auto tokens = static_cast<size_t>(step.tokens);
  for (int layer = 0; layer < g.layers; ++layer) {
    Layer& tensors = step.layers.emplace_back();
    const auto take = [&](std::vector<float>& tensor, int heads, int dim, TokenPart kind) {
      const auto width = static_cast<size_t>(heads * dim);
      tensor.reserve(tokens * width);
      for (const Part& part : step.parts) {
        for (size_t i = static_cast<size_t>(part.start); i < part.history.size(); ++i) {
          const float* values = token_values(part.history[i], layer, static_cast<int64_t>(i), kind);
          tensor.insert(tensor.end(), values, values + width);
        }
      }
    };
    const HeadShape heads = g.heads(layer);
    take(tensors.k, heads.kv_heads, heads.key_dim, TokenPart::kKey);
    take(tensors.v, heads.kv_heads, heads.value_dim, TokenPart::kValue);
    take(tensors.q, g.query_heads, heads.key_dim, TokenPart::kQuery);
    tensors.out.resize(tokens * static_cast<size_t>(g.query_heads * heads.value_dim));
    tensors.lse.resize(tokens * static_cast<size_t>(g.query_heads));
  }
}

void World::enqueue_layers(Step& step, int layers) {
  const Geometry& g = setup_.geometry;
  const int64_t tokens = step.tokens;
  for (int layer = 0; layer < layers; ++layer) {
    Layer& l = step.layers[static_cast<size_t>(layer)];
    const HeadShape heads = g.heads(layer);
    const auto input = [&](const std::vector<float>& tensor, int count, int dim) {
      return ConstTensorView::dense(tensor.data(), DType::kF32, tokens, count, dim);
    };
    if (!g.is_shared(layer)) {
      runtime_->append(layer, input(l.k, heads.kv_heads, heads.key_dim),
                       input(l.v, heads.kv_heads, heads.value_dim), compute_.view());
    }
    if (!step.attends) continue;
    runtime_->attend(
        layer, input(l.q, g.query_heads, heads.key_dim),
        TensorView::dense(l.out.data(), DType::kF32, tokens, g.query_heads, heads.value_dim),
        l.lse.data(), compute_.view());
  }
}

void World::step(Draw& draw) {
  if (sequences_.empty()) return create(draw);
  auto drawn = std::make_unique<Step>(draw_step(draw));
  if (drawn->parts.empty()) return;
  drawn->attends = !draw.one_in(12);
  const int layers = setup_.geometry.layers;
  const int abort_after = draw.one_in(10) ? static_cast<int>(draw.between(0, layers)) : -1;
  write_tensors(*drawn);
  last_ = abort_after >= 0 ? fmt::format("step, aborted after {} layers", abort_after)
          : drawn->attends ? "step"
                           : "step that only appends";
  for (const Part& part : drawn->parts) {
    last_ += fmt::format(", {} {} +{}{}", index_of(part.id), part.start, part.tokens(),
                         part.mode == StepMode::kDecode ? " decode" : "");
    if (part.dropped > 0) last_ += fmt::format(", {} dropped", part.dropped);
  }
  open_step(draw, std::move(drawn), abort_after);
  if (draw.one_in(3)) settle();
}

void World::open_step(Draw& draw, std::unique_ptr<Step> step, int abort_after) {
  std::vector<StepSequence> sequences;
  std::vector<NoisyQueries::Token> tokens;
  bool decodes_only = true;
  std::vector<int> kept;
  for (const Part& part : step->parts) {
    kept.push_back(static_cast<int>(part.tokens() - part.dropped));
    sequences.push_back({part.id, static_cast<int>(part.tokens()), part.mode});
    for (int64_t at = part.start; at < std::ssize(part.history); ++at) {
      tokens.push_back({part.history[static_cast<size_t>(at)], at});
    }
    decodes_only &= part.mode == StepMode::kDecode;
  }
  if (queries_ != nullptr && decodes_only) queries_->expect(std::move(tokens));
  const bool promised =
      step->parts.size() == 1 && decodes_only && step->tokens == 1 &&
      find(step->parts[0].id).promised >= static_cast<int64_t>(step->parts[0].history.size());
  copies_pages_ = std::any_of(step->parts.begin(), step->parts.end(), [this](const Part& part) {
    return writes_shared_page(find(part.id));
  });
  for (const Part& part : step->parts) {
    Sequence& sequence = find(part.id);
    if (sequence.rollback < 0) continue;
    sequence.rollback_from = std::max(sequence.rollback_from, part.start - sequence.rollback);
  }
  const Outcome begun = attempt(draw, "begin_step", [&] { runtime_->begin_step(sequences); });
  copies_pages_ = false;
  if (begun == Outcome::kRefused && promised) {
    mismatch("begin_step was refused memory that reserve() had promised: " + last_refusal_);
  }
  for (const Part& part : step->parts) find(part.id).busy = true;
  if (begun != Outcome::kDone) return;
  if (!promised) forget_promises();
  for (const Part& part : step->parts) {
    Sequence& sequence = find(part.id);
    if (setup_.rollback_windows) require_freed_pages(sequence);
    if (!writes_shared_page(sequence)) continue;
    sequence.pages[sequence.history.size() / kPageTokens] = next_page_++;
  }

  const bool faulty = draw.one_in(8) && faults_;
  if (faulty) arm(draw, {FaultPoint::kCopy, FaultPoint::kFill});
  const int layers = abort_after >= 0 ? abort_after : setup_.geometry.layers;
  bool thrown = false;
  try {
    if (has_states() && abort_after != 0) enqueue_linear(*step);
    enqueue_layers(*step, layers);
    // As a model does, and the cpu device.
    if (has_states() || setup_.unified) device_->synchronize(compute_.view());
    if (abort_after < 0) runtime_->end_step(kept);
  } catch (const DeviceError& error) {
    if (injector_.fired() == 0 && !failed_late()) {
      mismatch(fmt::format("a step failed for no reason: {}", error.what()));
    }
    thrown = true;
  }
  tally_.injected += injector_.lift();
  if (thrown || abort_after >= 0) {
    // States are written until then.
    if (has_states()) stepped_->run_until_idle();
    runtime_->abort_step();
    if (thrown) last_ += "; a copy failed, aborted";
    // The step's tensors are read until then. After a failure some of its work may still be under
    // way.
    stepped_->run_until_idle();
    if (failed_late()) return;
    for (const Part& part : step->parts) cut_to_state(find(part.id));
    return;
  }
  commit(std::move(step));
}

void World::commit(std::unique_ptr<Step> step) {
  ++tally_.steps;
  for (const Part& part : step->parts) {
    Sequence& sequence = find(part.id);
    sequence.history.assign(part.history.begin(), part.history.end() - part.dropped);
    sequence.decoded.assign(part.decoded.begin(), part.decoded.end() - part.dropped);
    const size_t pages = sequence.pages.size();
    cut_pages(sequence);
    for (size_t i = pages; i < sequence.pages.size(); ++i) sequence.pages[i] = next_page_++;
  }
  pending_.push_back(std::move(step));
}

void World::settle() {
  try {
    device_->synchronize(compute_.view());
  } catch (const DeviceError&) {
    if (failed_late()) return;  // handled at the operation's end
    throw;
  }
  for (const auto& step : pending_) compare(*step);
  pending_.clear();
}

// Decoded tokens one by one.
std::vector<Attended> World::expected(const Part& part) {
  if (part.mode == StepMode::kPrefill) return plain_.attend(part.history, part.start, part.mode);
  std::vector<Attended> all(static_cast<size_t>(setup_.geometry.layers));
  for (int64_t at = part.start; at < std::ssize(part.history); ++at) {
    const auto history = std::span(part.history).first(static_cast<size_t>(at) + 1);
    const std::vector<Attended> one = plain_.attend(history, at, part.mode);
    for (size_t layer = 0; layer < one.size(); ++layer) {
      all[layer].out.insert(all[layer].out.end(), one[layer].out.begin(), one[layer].out.end());
      all[layer].lse.insert(all[layer].lse.end(), one[layer].lse.begin(), one[layer].lse.end());
    }
  }
  return all;
}

void World::compare(const Step& step) {
  if (has_states()) compare_linear(step);
  if (!step.attends) return;
  size_t first_token = 0;
  for (const Part& part : step.parts) {
    const std::vector<Attended> expected = this->expected(part);
    for (size_t layer = 0; layer < expected.size(); ++layer) {
      compare(part, step.layers[layer], expected[layer], first_token, static_cast<int>(layer));
      tally_.compared += part.tokens();
    }
    first_token += static_cast<size_t>(part.tokens());
  }
  for (const Layer& layer : step.layers) {
    digest_.add(layer.out.data(), layer.out.size() * sizeof(float));
  }
}

void World::compare(const Part& part, const Layer& layer, const Attended& expected,
                    size_t first_token, int layer_index) const {
  const Geometry& g = setup_.geometry;
  const auto width = static_cast<size_t>(g.query_heads * g.heads(layer_index).value_dim);
  const auto heads = static_cast<size_t>(g.query_heads);
  for (size_t i = 0; i < static_cast<size_t>(part.tokens()); ++i) {
    const bool same = std::memcmp(tokens_at(layer.out, first_token + i, width),
                                  tokens_at(expected.out, i, width), width * sizeof(float)) == 0 &&
                      std::memcmp(tokens_at(layer.lse, first_token + i, heads),
                                  tokens_at(expected.lse, i, heads), heads * sizeof(float)) == 0;
    if (same) continue;
    mismatch(fmt::format("sequence {}, layer {}, token {} ({}): attention gave {}, it should be {}",
                         index_of(part.id), layer_index, part.start + static_cast<int64_t>(i),
                         part.mode == StepMode::kDecode ? "decode" : "prefill",
                         *tokens_at(layer.out, first_token + i, width),
                         *tokens_at(expected.out, i, width)));
  }
}

}  // namespace fasa::testing
