#include "runtime/api/sequences/linear_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {

void LinearStates::create(SequenceId id) {
  if (!empty()) states_.emplace(index_of(id), LinearState(device_, layout_, rule_));
}

int64_t LinearStates::resume_point(SequenceId id, int64_t tokens) const {
  return empty() ? tokens : at(id).resume_point(tokens);
}

void LinearStates::require_resume_point(const char* call, SequenceId id, int64_t tokens) const {
  const int64_t nearest = resume_point(id, tokens);
  if (nearest == tokens) return;
  throw UsageError(
      fmt::format("{} {}: the state of the layers with linear attention is not known there; "
                  "allowed: {}, the nearest point before it (resume_point), and compute the tokens "
                  "from there on again",
                  call, tokens, nearest));
}

void LinearStates::truncate(SequenceId id, int64_t tokens) {
  if (!empty()) at(id).truncate(tokens);
}

std::optional<LinearState> LinearStates::fork(SequenceId id, int64_t tokens,
                                              StreamView stream) const {
  if (empty()) return std::nullopt;
  return at(id).fork(tokens, stream);
}

void LinearStates::add(SequenceId id, std::optional<LinearState> state) {
  if (state) states_.emplace(index_of(id), *std::move(state));
}

void LinearStates::begin(std::span<const StepSequence> step, const SequenceTable& sequences,
                         StreamView stream) {
  computed_ = false;
  parts_.clear();
  int64_t first = 0;
  for (const StepSequence& part : step) {
    const KvSequence& sequence = sequences.find(part.sequence);
    if (at(part.sequence).tokens() != sequence.length()) {
      throw UsageError(fmt::format(
          "sequence {} has {} tokens by import_pages, and no state of its layers with linear "
          "attention; call import_state, or truncate it to 0",
          index_of(part.sequence), sequence.length()));
    }
    const LinearState::Step own{.first = first,
                                .tokens = part.tokens,
                                .decodes = part.mode == StepMode::kDecode,
                                .rollback_tokens = sequence.rollback_tokens()};
    parts_.push_back(at(part.sequence).begin(own, stream));
    first += part.tokens;
  }
}

std::span<const LinearPart> LinearStates::parts() {
  computed_ = true;
  return parts_;
}

void LinearStates::require_computed() const {
  if (empty() || computed_) return;
  throw UsageError(
      "end_step: the model has layers with linear attention, and linear_parts() was not called; "
      "compute them in each step (Model::forward does)");
}

void LinearStates::commit(std::span<const StepSequence> step) {
  if (empty()) return;
  for (const StepSequence& part : step) at(part.sequence).commit();
}

void LinearStates::abort(std::span<const StepSequence> step) {
  if (empty()) return;
  for (const StepSequence& part : step) at(part.sequence).abort(computed_);
}

void LinearStates::add_to(KvMemory& memory) const {
  std::unordered_set<const void*> counted;
  for (const auto& [id, state] : states_) {
    memory.device_states += state.device_bytes();
    state.visit_snapshots([&](const void* snapshot, uint64_t bytes) {
      if (counted.insert(snapshot).second) memory.host_states += bytes;
    });
  }
}

std::vector<StatePoint> LinearStates::points(SequenceId id) const {
  return empty() ? std::vector<StatePoint>() : at(id).points();
}

void LinearStates::export_state(SequenceId id, const StatePoint& point, size_t offset,
                                std::span<std::byte> bytes, StreamView stream) const {
  const std::vector<StatePoint> all = points(id);
  if (std::find(all.begin(), all.end(), point) == all.end()) {
    throw UsageError(
        fmt::format("export_state at {} tokens; allowed: one of the {} states that states() names",
                    point.tokens, all.size()));
  }
  if (offset > point.bytes || bytes.size() > point.bytes - offset) {
    throw UsageError(fmt::format("export_state of bytes {} to {} of a state; it has {}", offset,
                                 offset + bytes.size(), point.bytes));
  }
  at(id).export_state(point, offset, bytes, stream);
}

void LinearStates::import_state(SequenceId id, int64_t length, const StatePoint& point,
                                size_t offset, std::span<const std::byte> bytes,
                                StreamView stream) {
  const bool fits = !empty() && point.open >= 0 && point.open < kLinearBlock &&
                    point.open <= point.tokens &&
                    point.bytes == static_cast<uint64_t>(layout_.copied_bytes(point.open));
  if (!fits) {
    throw UsageError(
        fmt::format("import_state of {} bytes with {} open tokens: it is no state of "
                    "this model's layers with linear attention",
                    point.bytes, point.open));
  }
  if (at(id).tokens() != 0 || length != point.tokens) {
    throw UsageError(fmt::format(
        "import_state at {} tokens: the sequence has {}, with a state at {}; allowed: right after "
        "import_pages of all of its tokens",
        point.tokens, length, at(id).tokens()));
  }
  if (offset != at(id).imported() || bytes.empty() || bytes.size() > point.bytes - offset) {
    throw UsageError(fmt::format(
        "import_state of bytes {} to {} of {}; allowed: the bytes from {} on, 1 or more", offset,
        offset + bytes.size(), point.bytes, at(id).imported()));
  }
  Guard guard(*this);
  guard.reserve(id);
  at(id).import_state(point, offset, bytes, stream);
  guard.keep();
}

LinearStates::Guard::~Guard() {
  if (kept_) return;
  for (const StepSequence& part : begun_) states_.at(part.sequence).abort(false);
  for (LinearState* state : reserved_) state->release();
}

void LinearStates::Guard::reserve(SequenceId id) {
  if (states_.empty() || states_.at(id).reserved()) return;
  reserved_.reserve(reserved_.size() + 1);
  states_.at(id).reserve();
  reserved_.push_back(&states_.at(id));
}

void LinearStates::Guard::begin(std::span<const StepSequence> step, const SequenceTable& sequences,
                                StreamView stream) {
  if (states_.empty()) return;
  begun_ = step;
  states_.begin(step, sequences, stream);
}

}  // namespace fasa
