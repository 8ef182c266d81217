#include "runtime/doors/runtime.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/raw_slopes.h"
#include "runtime/doors/runtime_impl.h"
#include "runtime/doors/slice_dims_upload.h"

namespace fasa {

Runtime::Impl::Impl(Device& device, const Config& config, const Geometry& geometry,
                    RowDType row_dtype, const std::vector<int16_t>& slice_dims, int64_t max_context,
                    int32_t most_steps)
    : device_(device),
      geometry_(geometry),
      settings_(make_step_settings(config, geometry, row_dtype, device.traits(), max_context)),
      hot_rows_wanted_(config.placement.hot_rows || settings_.rows_on_device
                           ? std::optional<int>()
                           : settings_.layout.hot_rows),
      pools_{BlockPool(device, settings_.rows_on_device ? MemorySpace::kDevice : MemorySpace::kHost,
                       static_cast<size_t>(settings_.layout.row_block_bytes()), "rows"),
             BlockPool(device, MemorySpace::kDevice,
                       static_cast<size_t>(settings_.layout.slice_block_bytes()), "slices")},
      scratch_(device, settings_),
      prefetch_(device, settings_),
      tables_ready_(device.create_event()),
      rows_read_(device.create_event()),
      decodes_several_(device.kind() == DeviceKind::kCpu && !settings_.selection_evicts),
      graphs_wanted_(config.device.graphs),
      slots_{DescriptorBuffer(device), DescriptorBuffer(device)},
      probes_{StepProbe(device), StepProbe(device)},
      counters_(device, settings_.layout),
      most_steps_(most_steps) {
  if (most_steps < 1 || most_steps > kMaxSteps) {
    throw UsageError(fmt::format("most_steps = {}: allowed: 1 to {}", most_steps, kMaxSteps));
  }
  check_slice_dims(slice_dims, settings_.layout, geometry);
  if (graphs_wanted_ && device.graphs() != nullptr) prefetch_.plan_coarsely();
  start_streams();
  upload_slopes();
  slice_dims_ = upload_slice_dims(device, slice_dims, settings_.layout, control_.view());
  reset_metrics();
  device.add_reclaimer(*this);
}

// Kernels add them to q·k before the scale.
void Runtime::Impl::upload_slopes() {
  const std::vector<float> slopes = raw_slopes(geometry_);
  if (slopes.empty()) return;
  const size_t bytes = slopes.size() * sizeof(float);
  slopes_ = device_.allocate(MemorySpace::kDevice, bytes, "ALiBi slopes");
  device_.copy(slopes_.data(), slopes.data(), bytes, CopyKind::kHostToDevice, control_.view());
  device_.synchronize(control_.view());
}

Runtime::Impl::~Impl() {
  device_.remove_reclaimer(*this);
  try {
    if (step_) device_.record(step_->slot->done(), step_->compute);
    drain();
  } catch (const std::exception&) {
    // The streams' failures were reported where they were waited for.
  }
}

void Runtime::Impl::start_streams() {
  graphs_.clear();
  control_ = device_.create_stream(StreamPriority::kHigh, "control");
  pipeline_ = std::make_unique<StepPipeline>(device_, settings_);
  sampler_.reset();
}

KvSequence& Runtime::Impl::find(SequenceId id) const {
  const auto found = sequences_.find(index_of(id));
  if (found == sequences_.end()) {
    throw UsageError(fmt::format("sequence {} does not exist or was freed", index_of(id)));
  }
  return *found->second;
}

KvSequence& Runtime::Impl::find_usable(SequenceId id) const {
  KvSequence& sequence = find(id);
  if (sequence.failure) throw DeviceError(*sequence.failure);
  return sequence;
}

void Runtime::Impl::require_no_step(const char* call) const {
  if (step_) {
    throw UsageError(fmt::format("{} inside a step; call end_step or abort_step first", call));
  }
}

SequenceId Runtime::Impl::create() {
  const uint64_t id = next_id_++;
  sequences_[id] = std::make_unique<KvSequence>(device_, settings_, pools_);
  return SequenceId{id};
}

// The whole of what a sequence needs is said at once, not the first part that does not fit.
SequenceId Runtime::Impl::fork(SequenceId id, int64_t tokens) {
  require_no_step("fork");
  const KvSequence& parent = find_usable(id);
  if (tokens < 0 || tokens > parent.length()) {
    throw UsageError(fmt::format("fork at token {}; allowed: 0 to the sequence's length, {}",
                                 tokens, parent.length()));
  }
  drain();  // the child reads rows that may still be on their way to the host
  find_usable(id);
  fetch_pages(*sequences_.at(index_of(id)), pages_of(tokens) - 1, pages_of(tokens));
  auto child = std::make_unique<KvSequence>(device_, settings_, pools_);
  child->share(parent, tokens);
  const uint64_t child_id = next_id_++;
  sequences_[child_id] = std::move(child);
  return SequenceId{child_id};
}

void Runtime::Impl::truncate(SequenceId id, int64_t tokens) {
  require_no_step("truncate");
  KvSequence& sequence = find_usable(id);
  if (tokens < 0 || tokens > sequence.length()) {
    throw UsageError(fmt::format("truncate to {} tokens; allowed: 0 to the sequence's length, {}",
                                 tokens, sequence.length()));
  }
  drain();  // pages that go back to the pool may still be read
  find_usable(id);
  fetch_pages(sequence, pages_of(tokens) - 1, pages_of(tokens));
  sequence.truncate(tokens);
}

void Runtime::Impl::free(SequenceId id) {
  require_no_step("free");
  find(id);
  drain();
  sequences_.erase(index_of(id));
}

FetchMetrics Runtime::Impl::metrics() {
  drain();
  require_streams();
  return counters_.read(settings_.layout, control_.view());
}

void Runtime::Impl::reset_metrics() {
  drain();
  require_streams();
  counters_.reset(control_.view());
}

void Runtime::Impl::set_query_source(QuerySource* source) {
  require_no_step("set_query_source");
  drain();
  graphs_.clear();
  prefetch_.set_query_source(source);
}

int Runtime::Impl::estimate_depth() const {
  const GuessScratch guesses = PrefetchControl::scratch_for(settings_, geometry_.layers - 1);
  return guesses.writes_sets ? guesses.max_depth : 0;
}

void Runtime::Impl::set_predictor(Predictor* predictor) {
  require_no_step("set_predictor");
  drain();
  graphs_.clear();
  prefetch_.set_predictor(predictor);
}

Runtime::Runtime(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
                 const std::vector<int16_t>& slice_dims, int64_t max_context, int32_t most_steps)
    : impl_(std::make_unique<Impl>(device, config, geometry, row_dtype, slice_dims, max_context,
                                   most_steps)) {}
Runtime::~Runtime() = default;
const Geometry& Runtime::geometry() const { return impl_->geometry(); }
RowDType Runtime::row_dtype() const { return impl_->row_dtype(); }
SequenceId Runtime::create() { return impl_->create(); }
KvMemory Runtime::predict(int64_t tokens, int step_tokens) const {
  return impl_->predict(tokens, step_tokens);
}
void Runtime::reserve(SequenceId sequence, int64_t tokens, int step_tokens) {
  impl_->reserve(sequence, tokens, step_tokens);
}
SequenceId Runtime::fork(SequenceId sequence, int64_t tokens) {
  return impl_->fork(sequence, tokens);
}
void Runtime::truncate(SequenceId sequence, int64_t tokens) { impl_->truncate(sequence, tokens); }
void Runtime::free(SequenceId sequence) { impl_->free(sequence); }
int64_t Runtime::length(SequenceId sequence) const { return impl_->length(sequence); }
void Runtime::set_query_source(QuerySource* source) { impl_->set_query_source(source); }
int Runtime::estimate_depth() const { return impl_->estimate_depth(); }
void Runtime::set_predictor(Predictor* predictor) { impl_->set_predictor(predictor); }
int Runtime::most_decoded(SequenceId id) const { return impl_->most_decoded(id); }
void Runtime::begin_step(std::span<const StepSequence> sequences) { impl_->begin_step(sequences); }
void Runtime::append(int layer, ConstTensorView k, ConstTensorView v, StreamView stream) {
  impl_->append(layer, k, v, stream);
}
void Runtime::attend(int layer, ConstTensorView q, TensorView out, float* lse, StreamView stream) {
  impl_->attend(layer, q, out, lse, stream);
}
void Runtime::run_layers(StreamView stream, std::span<const uint64_t> shape,
                         const std::function<void()>& layers) {
  impl_->run_layers(stream, shape, layers);
}
GraphMetrics Runtime::graph_metrics() const { return impl_->graph_metrics(); }
void Runtime::end_step() { impl_->end_step(); }
void Runtime::abort_step() { impl_->abort_step(); }
void Runtime::read(SequenceId sequence, int layer, int64_t first, TensorView k, TensorView v,
                   StreamView stream) {
  impl_->read(sequence, layer, first, k, v, stream);
}
PageBytes Runtime::page_bytes() const { return impl_->page_bytes(); }
void Runtime::save_page(SequenceId sequence, int64_t page, std::span<std::byte> rows,
                        std::span<std::byte> slices) {
  impl_->save_page(sequence, page, rows, slices);
}
void Runtime::load_page(SequenceId sequence, int tokens, std::span<const std::byte> rows,
                        std::span<const std::byte> slices) {
  impl_->load_page(sequence, tokens, rows, slices);
}
bool Runtime::takes_row_sources() const { return impl_->takes_row_sources(); }
void Runtime::set_row_source(SequenceId sequence, std::shared_ptr<RowSource> source,
                             int64_t pages) {
  impl_->set_row_source(sequence, std::move(source), pages);
}
bool Runtime::fetch_rows(SequenceId sequence, size_t most_bytes) {
  return impl_->fetch_rows(sequence, most_bytes);
}
bool Runtime::lacks_rows(SequenceId sequence) const { return impl_->lacks_rows(sequence); }
bool Runtime::lost_rows(SequenceId sequence) const { return impl_->lost_rows(sequence); }
KvMemory Runtime::memory() const { return impl_->memory(); }
FetchMetrics Runtime::metrics() { return impl_->metrics(); }
void Runtime::reset_metrics() { impl_->reset_metrics(); }

}  // namespace fasa
