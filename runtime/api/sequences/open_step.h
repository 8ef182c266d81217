// A step of the sequences API, from begin_step to end_step or abort_step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "scheduler/step/descriptor_buffer.h"
#include "scheduler/step/step_context.h"

namespace fasa {

class KvSequence;

struct StepSequence {
  SequenceId sequence;
  int tokens = 1;  // new tokens; for kDecode 1, or up to SequenceInfo::max_decoded
  StepMode mode = StepMode::kDecode;
};

// A sequence of an open step, which outlives it.
struct StepPart {
  SequenceId id = {};
  KvSequence* sequence = nullptr;
  int tokens = 1;
  StepMode mode = StepMode::kDecode;
};

struct OpenStep {
  std::vector<StepPart> sequences;
  StepContext tables;
  // Attention if a sequence decodes several tokens, see DecodeRounds. `round_members`: the index
  // among `sequences` of each of the slot's descriptors of rounds.
  std::vector<StepContext> rounds;
  std::vector<size_t> round_members;
  DescriptorBuffer* slot = nullptr;
  size_t slot_index = 0;
  int64_t tokens = 0;
  int appended = 0;  // of the layers that store keys and values
  int attended = 0;  // layers
  StreamView compute;
  bool enqueued = false;  // there is work on it
  // A piece of a chunk: the tokens from `start` on, in one layer.
  struct Piece {
    int layer = 0;  // below 0: of linear attention
    int64_t start = 0;
    LayerRows rows = {};
  };
  std::optional<Piece> piece;
  std::vector<LinearPart> linear;  // see Runtime::linear_parts
  bool computed = false;           // they were asked for
  bool decodes = false;
  bool launched = false;               // as a graph; compute awaits all of its work
  bool recording = false;              // enqueued work goes into a graph
  std::optional<std::string> failure;  // its streams are gone; abort_step is the only call allowed

  // What attention runs on, one after the other.
  std::span<StepContext> attention() {
    return rounds.empty() ? std::span(&tables, 1) : std::span(rounds);
  }
  // True if all keys and values were appended, and all or none of the layers attended to.
  bool went_through(const StepSettings& settings) const {
    return appended == settings.storing_layers() &&
           (attended == 0 || attended == settings.layer_count());
  }
};

}  // namespace fasa
