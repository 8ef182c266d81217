// Layers with linear attention in a simulation run: their work in steps, and sequences that are
// stored elsewhere and come back.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"
#include "tests/simulation/world.h"

namespace fasa::testing {

void World::enqueue_linear(Step& step) {
  for (int layer = 0; layer < linear_.layers(); ++layer) {
    step.linear.emplace_back(static_cast<size_t>(step.tokens) * linear_.token_bytes());
    enqueue_linear(step, layer, 0, step.tokens);
  }
}

// `count` tokens of a step or chunk, from `first` on.
void World::enqueue_linear(Step& step, int layer, int64_t first, int64_t count) {
  const std::span<const LinearPart> parts = runtime_->linear_parts();
  std::vector<LinearLayers::Token> tokens;
  for (const Part& part : step.parts) {
    for (auto i = static_cast<size_t>(part.start); i < part.history.size(); ++i) {
      tokens.push_back({part.history[i], static_cast<int64_t>(i)});
    }
  }
  tokens = {tokens.begin() + first, tokens.begin() + first + count};
  std::byte* const out = step.linear[static_cast<size_t>(layer)].data() +
                         static_cast<size_t>(first) * linear_.token_bytes();
  device_->launch(compute_.view(), "linear",
                  [=, this, parts = std::vector(parts.begin(), parts.end())] {
                    linear_.run(layer, parts, tokens, out);
                    return KernelWork{};
                  });
}

void World::compare_linear(const Step& step) const {
  size_t first = 0;
  for (const Part& part : step.parts) {
    const auto expected = linear_.attend(part.history, part.decoded, part.start);
    for (size_t layer = 0; layer < expected.size(); ++layer) {
      const size_t bytes = linear_.token_bytes();
      for (size_t i = 0; i < static_cast<size_t>(part.tokens()); ++i) {
        const std::byte* const given = step.linear[layer].data() + (first + i) * bytes;
        if (std::memcmp(given, expected[layer].data() + i * bytes, bytes) == 0) continue;
        mismatch(
            fmt::format("sequence {}, layer {} with linear attention, token {} ({}): its output "
                        "is not that of the history computed anew",
                        index_of(part.id), layer, part.start + static_cast<int64_t>(i),
                        part.mode == StepMode::kDecode ? "decode" : "prefill"));
      }
    }
    first += static_cast<size_t>(part.tokens());
  }
}

bool World::knows_state(const Sequence& sequence, int64_t tokens) const {
  if (!has_states() || tokens == 0) return true;
  const std::vector<StatePoint> points = runtime_->exchange().states(sequence.id);
  return std::any_of(points.begin(), points.end(),
                     [&](const StatePoint& point) { return point.tokens == tokens; });
}

void World::cut_to_state(Sequence& sequence) {
  if (!has_states()) return;
  const auto length = static_cast<int64_t>(sequence.history.size());
  const int64_t point = runtime_->resume_point(sequence.id, length);
  if (point == length) return;
  runtime_->truncate(sequence.id, point);
  last_ += fmt::format("; {} is cut to its state at {}", index_of(sequence.id), point);
  sequence.history.resize(static_cast<size_t>(point));
  sequence.decoded.resize(static_cast<size_t>(point));
  if (point == 0) sequence.rollback_from = 0;
  cut_pages(sequence);
  forget_promises();
}

// The states that a sequence says it has are at its tokens, and one at the end.
void World::check_states() const {
  if (!has_states()) return;
  for (const Sequence& sequence : sequences_) {
    const auto length = static_cast<int64_t>(sequence.history.size());
    if (!knows_state(sequence, length)) {
      mismatch(
          fmt::format("sequence {} has no state at its end, {}", index_of(sequence.id), length));
    }
    int64_t before = 0;
    for (const StatePoint& point : runtime_->exchange().states(sequence.id)) {
      const bool fits =
          point.tokens > before && point.tokens <= length &&
          point.decoded == (sequence.decoded[static_cast<size_t>(point.tokens - 1)] != 0);
      if (!fits) {
        mismatch(fmt::format("sequence {} of {} tokens says that it has a state at {}",
                             index_of(sequence.id), length, point.tokens));
      }
      before = point.tokens;
    }
  }
}

void World::suspend(Draw& draw) {
  constexpr size_t kMaxSequences = 6;
  const Sequence* const from = pick(draw);
  if (from == nullptr || setup_.rollback_windows || sequences_.size() >= kMaxSequences) return;
  const std::vector<StatePoint> points = runtime_->exchange().states(from->id);
  if (points.empty()) return;
  const StatePoint point = points[static_cast<size_t>(draw.below(std::ssize(points)))];
  last_ = fmt::format("pages and state of {} at {} of {} to a new sequence", index_of(from->id),
                      point.tokens, from->history.size());
  const PageBytes bytes = runtime_->traits().page;
  const auto length = static_cast<int64_t>(from->history.size());
  std::vector<std::vector<std::byte>> pages;
  std::vector<PageSpans> spans;
  for (int64_t page = 0; page < pages_of(point.tokens); ++page) {
    const bool full = (page + 1) * kPageTokens <= length;
    pages.emplace_back(bytes.rows + bytes.slices);
    spans.push_back({std::span(pages.back()).first(bytes.rows),
                     std::span(pages.back()).subspan(bytes.rows, full ? bytes.slices : 0)});
  }
  std::vector<std::byte> state(point.bytes);
  const auto half = static_cast<size_t>(draw.below(static_cast<int64_t>(point.bytes)));
  const SequenceId id = from->id;
  const auto export_all = [&] {
    runtime_->exchange().export_pages(id, 0, spans);
    runtime_->exchange().export_state(id, point, half, std::span(state).subspan(half));
    runtime_->exchange().export_state(id, point, 0, std::span(state).first(half));
  };
  find(id).busy = true;
  if (attempt(draw, "export_pages", export_all) != Outcome::kDone) return;
  SequenceId to{};
  if (attempt(draw, "create", [&] { to = runtime_->create(); }) != Outcome::kDone) return;
  Sequence copy{.id = to, .history = find(id).history, .decoded = find(id).decoded};
  copy.history.resize(static_cast<size_t>(point.tokens));
  copy.decoded.resize(static_cast<size_t>(point.tokens));
  sequences_.push_back({.id = to, .busy = true});
  if (!resume(draw, to, point, pages, state)) return;
  copy.busy = true;
  for (size_t page = 0; page < pages.size(); ++page) copy.pages.push_back(next_page_++);
  find(to) = std::move(copy);
  forget_promises();
}

bool World::resume(Draw& draw, SequenceId id, const StatePoint& point,
                   const std::vector<std::vector<std::byte>>& pages,
                   std::span<const std::byte> state) {
  const PageBytes bytes = runtime_->traits().page;
  std::vector<ConstPageSpans> spans;
  for (size_t page = 0; page < pages.size(); ++page) {
    const bool full = static_cast<int64_t>(page + 1) * kPageTokens <= point.tokens;
    spans.push_back({std::span(pages[page]).first(bytes.rows),
                     std::span(pages[page]).subspan(bytes.rows, full ? bytes.slices : 0)});
  }
  const auto import_pages = [&] { runtime_->exchange().import_pages(id, point.tokens, spans); };
  if (attempt(draw, "import_pages", import_pages) != Outcome::kDone) return false;
  const auto half = static_cast<size_t>(draw.between(1, std::ssize(state)));
  // Not yet what the records say, so a failure is met here.
  try {
    runtime_->exchange().import_state(id, point, 0, state.first(half));
    if (half < state.size())
      runtime_->exchange().import_state(id, point, half, state.subspan(half));
    return true;
  } catch (const BudgetError& error) {
    if (fits(error))
      mismatch(fmt::format("import_state was refused, and there is room: {}", error.what()));
    ++tally_.refused;
    last_ += ", no memory for the state";
  } catch (const DeviceError& error) {
    if (!failed_late())
      mismatch(fmt::format("import_state failed for no reason: {}", error.what()));
  }
  if (runtime_->resume_point(id, point.tokens) != 0) mismatch("half a state is said to be one");
  if (!failed_late()) runtime_->truncate(id, 0);
  return false;
}

}  // namespace fasa::testing
