// What stands behind Runtime: the cache's sequences, the step that is open, the pipeline.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/doors/fetch_counters.h"
#include "runtime/doors/hit_rate_sampler.h"
#include "runtime/doors/memory_prediction.h"
#include "runtime/doors/runtime.h"
#include "runtime/doors/settings.h"
#include "runtime/doors/step_graphs.h"
#include "scheduler/cache/kv_sequence.h"
#include "scheduler/descriptor_buffer.h"
#include "scheduler/prefetch/prefetch_control.h"
#include "scheduler/step_pipeline.h"
#include "scheduler/step_scratch.h"

namespace fasa {

class Runtime::Impl : private MemoryReclaimer {
 public:
  Impl(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
       const std::vector<int16_t>& slice_dims, int64_t max_context, int32_t most_steps);
  ~Impl() override;
  Impl(const Impl&) = delete;  // the device knows it
  Impl& operator=(const Impl&) = delete;

  const Geometry& geometry() const { return geometry_; }
  RowDType row_dtype() const { return settings_.layout.row.dtype; }
  SequenceId create();
  KvMemory predict(int64_t tokens, int step_tokens) const;
  void reserve(SequenceId id, int64_t tokens, int step_tokens);
  SequenceId fork(SequenceId id, int64_t tokens);
  void truncate(SequenceId id, int64_t tokens);
  void free(SequenceId id);
  int64_t length(SequenceId id) const { return find(id).length(); }

  void set_query_source(QuerySource* source);
  int estimate_depth() const;
  void set_predictor(Predictor* predictor);
  int most_decoded(SequenceId id) const;
  void begin_step(std::span<const StepSequence> sequences);
  void append(int layer, ConstTensorView k, ConstTensorView v, StreamView stream);
  void attend(int layer, ConstTensorView q, TensorView out, float* lse, StreamView stream);
  void run_layers(StreamView stream, std::span<const uint64_t> shape,
                  const std::function<void()>& layers);
  GraphMetrics graph_metrics() const;
  void end_step();
  void abort_step();
  void read(SequenceId id, int layer, int64_t first, TensorView k, TensorView v, StreamView stream);

  PageBytes page_bytes() const;
  void save_page(SequenceId id, int64_t page, std::span<std::byte> rows,
                 std::span<std::byte> slices);
  void load_page(SequenceId id, int tokens, std::span<const std::byte> rows,
                 std::span<const std::byte> slices);
  bool takes_row_sources() const;
  void set_row_source(SequenceId id, std::shared_ptr<RowSource> source, int64_t pages);
  bool fetch_rows(SequenceId id, size_t most_bytes);
  bool lacks_rows(SequenceId id) const;
  bool lost_rows(SequenceId id) const;

  KvMemory memory() const;
  FetchMetrics metrics();
  void reset_metrics();

 private:
  struct OpenStep {
    std::vector<StepSequence> sequences;
    StepBatch tables;
    // What attends, where a sequence decodes several tokens: each of them as one of its own.
    std::vector<SequenceDesc> each;
    std::optional<StepBatch> each_tables;
    DescriptorBuffer* slot = nullptr;
    size_t slot_index = 0;
    int64_t tokens = 0;
    int appended = 0;  // layers
    int attended = 0;
    StreamView compute;
    bool decodes = false;
    bool launched = false;               // as a graph, whose work is all awaited by compute
    bool recording = false;              // what is enqueued goes into a graph
    std::optional<std::string> failure;  // its streams are gone; it can only be aborted
  };

  KvSequence& find(SequenceId id) const;
  KvSequence& find_usable(SequenceId id) const;
  void require_no_step(const char* call) const;
  void check_step(std::span<const StepSequence> sequences) const;
  void check_tensor(const char* name, const ConstTensorView& view, int64_t heads,
                    int64_t dim) const;
  void check_layer(const char* call, int layer, int next) const;
  // Waits for everything that was enqueued. A failure on the device is remembered by the sequences
  // that were at work there, and our streams and events start anew. Nothing is thrown, for the
  // caller may be working for another sequence.
  void drain();
  void note_control_work(SequenceId id);
  void mark_failed(std::span<const uint64_t> ids, const std::string& reason);
  void await_aborted();  // what the open step enqueued has passed, or failed
  void start_streams();
  void restart_streams(const std::string& failure);
  // Throws DeviceError where the device refused to start them after a failure, and still does.
  void require_streams();
  // The slot's last step has passed, and no failure is known of that was not drained.
  void free_slot(size_t index);
  void upload_slopes();
  void require_room(int64_t tokens, int step_tokens) const;
  // hot_rows = auto: as many as `count` sequences of `tokens` tokens leave room for, while no
  // sequence has any.
  void fit_hot_rows(int64_t tokens, int step_tokens, int count, bool may_grow);
  uint64_t needed_with(int hot_rows, int64_t tokens, int step_tokens);
  void set_hot_rows(int hot_rows);
  void widen_hot_rows(std::span<const StepSequence> sequences);
  KvSequence* widest() const;
  bool reclaim_hot_rows(MemorySpace space, size_t bytes);
  void renew_hot_rows();
  class MemoryGuard;
  // A page that others share is copied before it is written.
  void own_last_page(SequenceId id);
  void prepare_memory(std::span<const StepSequence> sequences, MemoryGuard& guard);
  KvMemory predict_least(int64_t tokens, int step_tokens) const;
  class ReclaimPause;
  DeviceRows* most_copies(DeviceRows* growing) const;
  Buffer find_copy_block(DeviceRows& growing, bool& drained);
  void copy_new_pages(std::span<const StepSequence> sequences);
  bool reclaim(MemorySpace space, size_t bytes) override;
  bool reclaim_copies(MemorySpace space, size_t bytes);
  struct CopyBytes {
    uint64_t rows = 0;
    uint64_t tables = 0;
  };
  CopyBytes copy_bytes() const;
  bool could_fit(size_t bytes) const;
  void give_up_copies(size_t bytes);
  void drop_copy_tables();
  void ensure_scratch(const DecodeShape& decode, const PrefillShape& prefill);
  void restart_stamps();
  void plan_prefetch(const OpenStep& step);
  void read_probe(size_t slot);
  void describe(OpenStep& step);
  void describe_each(OpenStep& step) const;
  void enqueue_tables(OpenStep& step);
  void copy_out(std::span<std::byte> out, const std::byte* block, bool on_device);
  void copy_in(std::byte* block, std::span<const std::byte> in, bool on_device);
  void fetch_pages(KvSequence& sequence, int64_t first, int64_t end);
  void fetch_rows_for(std::span<const StepSequence> sequences);
  void describe_sources(OpenStep& step) const;
  void sample_hit_rate(EventView step_done);
  std::optional<StepKey> graph_key(StreamView stream, std::span<const uint64_t> shape) const;
  void require_whole_step() const;
  // Throws what `layers` throws, DeviceError and BudgetError; the step is as it was then.
  Graph record_layers(StreamView stream, const std::function<void()>& layers, bool* attends);
  // Into the entry, or the entry is refused.
  void record_graph(StepGraphs::Entry& entry, StreamView stream,
                    const std::function<void()>& layers);
  bool launch_graph(const StepGraphs::Entry& entry, StreamView stream);

  Device& device_;
  const Geometry geometry_;
  StepSettings settings_;                     // but for the hot rows as the constructor made them
  const std::optional<int> hot_rows_wanted_;  // none: not ours to choose
  KvPools pools_;
  StepScratch scratch_;
  PrefetchControl prefetch_;
  Stream control_;  // uploads and repairs before a step
  Event tables_ready_;
  Event rows_read_;  // the last read() has passed
  std::unique_ptr<StepPipeline> pipeline_;
  const bool decodes_several_;  // tokens of a sequence in one step
  const bool graphs_wanted_;
  bool graphs_refused_ = false;
  StepGraphs graphs_;  // of the pipeline's streams
  GraphMetrics graph_metrics_;
  std::array<DescriptorBuffer, 2> slots_;
  std::array<StepProbe, 2> probes_;  // of the slots' steps
  std::array<int, 2> probed_depths_{};
  Buffer slice_dims_;
  Buffer slopes_;
  FetchCounters counters_;
  std::optional<HitRateSampler> sampler_;  // once a step was recorded
  std::unordered_map<uint64_t, std::unique_ptr<KvSequence>> sequences_;
  bool reclaim_paused_ = false;
  // Sequences at work, for drain() to know whose a failure is.
  struct AtWork {
    std::vector<uint64_t> in_step;
    std::vector<uint64_t> before_it;  // that the control stream worked for before the step
  };
  std::array<AtWork, 2> at_work_;       // by slot, until its next step begins
  std::vector<uint64_t> late_;          // work of theirs may still be under way then
  std::vector<uint64_t> beside_steps_;  // that the control stream worked for since a step began
  std::optional<std::string> streams_failure_;  // after which they could not be started again
  uint64_t next_id_ = 1;
  const int32_t most_steps_;
  int32_t stamp_ = 0;
  std::optional<OpenStep> step_;
};

}  // namespace fasa
