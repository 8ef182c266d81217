// Implementation of Runtime: the parts of the sequences API, and the calls that use several parts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/api/sequences/open_chunk.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/api/sequences/sequence_pages.h"
#include "runtime/api/sequences/step_describer.h"
#include "runtime/api/sequences/step_memory.h"
#include "runtime/api/sequences/step_recorder.h"
#include "runtime/api/sequences/step_streams.h"
#include "runtime/api/sequences/step_timing.h"
#include "runtime/api/settings.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {

class Runtime::Impl : private MemoryReclaimer {
 public:
  Impl(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
       const std::vector<int16_t>& slice_dims, int64_t max_context, int32_t max_steps);
  ~Impl() override;
  Impl(const Impl&) = delete;  // the device refers to it
  Impl& operator=(const Impl&) = delete;

  const Geometry& geometry() const { return engine_.geometry(); }
  const RuntimeTraits& traits() const { return traits_; }
  SequenceTable& sequences() { return sequences_; }
  void mark_resume_point(SequenceId id);
  void hold_resume_point(SequenceId id, int64_t tokens);
  // For calls between steps. Throws UsageError inside a step.
  void reserve(SequenceId id, int64_t tokens, int step_tokens);
  SequenceId fork(SequenceId id, int64_t tokens);
  void truncate(SequenceId id, int64_t tokens);
  void set_rollback_tokens(SequenceId id, int64_t tokens);
  void free(SequenceId id);
  SequencePages& pages_between_steps(const char* call);
  void export_pages(SequenceId id, int64_t first, std::span<const PageSpans> pages);
  void import_pages(SequenceId id, int64_t tokens, std::span<const ConstPageSpans> pages);
  void export_state(SequenceId id, const StatePoint& point, size_t offset,
                    std::span<std::byte> bytes);
  void import_state(SequenceId id, const StatePoint& point, size_t offset,
                    std::span<const std::byte> bytes);
  const StepMemory& step_memory() const { return memory_; }

  void set_predictor(Predictor* predictor);
  int max_decoded(const KvSequence& sequence) const;
  int max_drafted(const KvSequence& sequence) const;
  double read_back_seconds(const KvSequence& sequence) const;
  SequenceInfo info(SequenceId id) const;
  void begin_step(std::span<const StepSequence> sequences);
  void append(int layer, ConstTensorView k, ConstTensorView v, StreamView stream);
  void attend(int layer, ConstTensorView q, TensorView out, float* lse, StreamView stream);
  void run_layers(StreamView stream, std::span<const uint64_t> shape,
                  const std::function<void()>& layers);
  GraphMetrics graph_metrics() const { return recorder_.metrics(); }
  std::span<const LinearPart> linear_parts();
  void end_step(std::span<const int> kept);
  void abort_step();
  // open_chunk.cc
  uint64_t chunk_bytes(SequenceId id, int64_t tokens) const;
  void open_chunk(SequenceId id, int tokens);
  uint64_t chunk_room() const;
  void make_chunk_room(uint64_t bytes);
  void begin_piece(SequenceId id, int layer, int tokens);
  void begin_linear_piece(SequenceId id, int layer, int tokens, StreamView stream);
  void end_piece();
  void close_chunk(SequenceId id);
  void drop_chunk(SequenceId id);
  void read(SequenceId id, int layer, int64_t first, TensorView k, TensorView v, StreamView stream);

  KvMemory memory() const;
  FetchMetrics metrics();
  void reset_metrics();

 private:
  void settle();
  void require_no_step(const char* call);
  void require_no_chunk(const char* call, SequenceId id) const;
  OpenChunk& require_chunk(const char* call, SequenceId id);
  LayerPlan plan_piece(const KvSequence& sequence, int layer) const;
  struct PieceCall {
    const char* name;
    OpenChunk::Progress OpenChunk::*progress;
    int layer;
    int layers;  // of its kind
    int tokens;
  };
  OpenStep open_piece(SequenceId id, const PieceCall& call);
  void start_piece(OpenStep step);
  void code_slices(SequenceId id);
  // The control stream; behind earlier steps if they may write what `sequence` remembers.
  const Stream& stream_for_memories(const KvSequence& sequence);
  void begin_memories(OpenStep& step);
  OpenStep& require_step(const char* call, int layer, int OpenStep::*next);
  void check_kept(const OpenStep& step, std::span<const int> kept) const;
  void check_step(std::span<const StepSequence> sequences);
  void await_aborted();  // waits until the open step's work has finished or failed
  bool reclaim(MemorySpace space, size_t bytes) override;

  const StepSettings settings_;
  const RuntimeTraits traits_;
  StepStreams streams_;  // first: what follows waits for its work when it gives memory back
  StepEngine& engine_;
  SequenceTable sequences_;
  PrefetchControl prefetch_;
  StepMemory memory_;
  StepRecorder recorder_;
  StepTiming timing_;
  StepDescriber describer_;
  SequencePages pages_;
  std::optional<OpenChunk> chunk_;
  StepBuffer chunk_rows_;  // LayerRows of the open chunk
};

}  // namespace fasa
