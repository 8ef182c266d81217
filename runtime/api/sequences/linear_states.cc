#include "runtime/api/sequences/linear_states.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"

namespace fasa {

void LinearStates::create(SequenceId id) {
  if (!empty()) states_.emplace(index_of(id), LinearState(device_, layout_));
}

void LinearStates::reserve(SequenceId id) {
  if (!empty()) at(id).reserve();
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
  if (empty()) return;
  computed_ = false;
  parts_.clear();
  int64_t first = 0;
  for (const StepSequence& part : step) {
    const LinearState::Step own{.first = first,
                                .tokens = part.tokens,
                                .decodes = part.mode == StepMode::kDecode,
                                .rollback_tokens = sequences.find(part.sequence).rollback_tokens()};
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
  for (const auto& [id, state] : states_) {
    memory.device_states += state.device_bytes();
    memory.host_states += state.host_bytes();
  }
}

}  // namespace fasa
