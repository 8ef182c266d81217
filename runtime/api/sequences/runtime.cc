#include "runtime/api/sequences/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/api/sequences/memory_guard.h"
#include "runtime/api/sequences/runtime_impl.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

void require_resume_point(const char* call, const KvSequence& sequence, int64_t tokens) {
  if (tokens < 0 || tokens > sequence.length()) {
    throw UsageError(fmt::format("{} {}; allowed: 0 to the sequence's length, {}", call, tokens,
                                 sequence.length()));
  }
  if (!sequence.can_truncate_to(tokens)) {
    throw UsageError(
        fmt::format("{} {} of {} tokens: pages that it needs were freed; allowed: 0, or at most {} "
                    "tokens before the end (set_rollback_tokens)",
                    call, tokens, sequence.length(), sequence.rollback_tokens()));
  }
  const int64_t nearest = sequence.memory_point(tokens);
  if (nearest == tokens) return;
  throw UsageError(
      fmt::format("{} {}: the state of the layers with linear attention is not known there; "
                  "allowed: {}, the nearest point before it (resume_point), and compute the tokens "
                  "from there on again",
                  call, tokens, nearest));
}

LinearState& require_linear(const char* call, const KvSequence& sequence) {
  if (sequence.linear() != nullptr) return *sequence.linear();
  throw UsageError(fmt::format("{}: allowed in models with layers of linear attention", call));
}

PageBytes page_bytes(const StepSettings& settings) {
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count); };
  const int64_t window_rows = settings.window_rows.row_block_bytes();
  return {
      .rows = bytes(settings.layout.row_block_bytes() + window_rows),
      .window_rows = bytes(window_rows),
      .slices = bytes(settings.layout.slice.dims > 0 ? settings.layout.slice_block_bytes() : 0)};
}

RuntimeTraits traits_from(const StepSettings& settings) {
  const LayerGroup freed = settings.has_window_rows() ? settings.window_group() : settings.group();
  return {.row_dtype = settings.layout.row.dtype,
          .page = page_bytes(settings),
          .retention = freed.retention,
          .loads_on_demand = settings.rows == RowTier::kDisk,
          .chunks = !settings.selection_evicts};
}

}  // namespace

Runtime::Impl::Impl(Device& device, const Config& config, const Geometry& geometry,
                    RowDType row_dtype, const std::vector<int16_t>& slice_dims, int64_t max_context,
                    int32_t max_steps)
    : settings_(make_step_settings(config, geometry, row_dtype, device.traits(), max_context)),
      traits_(traits_from(settings_)),
      streams_(device, settings_, geometry, slice_dims, sequences_,
               [this] {
                 recorder_.clear();
                 engine_.counters().forget_samples();
                 timing_.renew_events();
               }),
      engine_(streams_.engine()),
      sequences_(device, settings_, streams_),
      prefetch_(settings_),
      memory_(streams_, prefetch_,
              config.placement.hot_rows || settings_.access() == RowAccess::kLocal
                  ? std::optional<int>()
                  : settings_.max_hot_rows),
      recorder_(streams_, prefetch_, memory_, config.device.graphs),
      timing_(streams_, prefetch_),
      describer_(streams_, max_steps),
      pages_(streams_, prefetch_, traits_),
      chunk_rows_(device, streams_, "a layer's rows of a prompt") {
  if (config.device.graphs && device.graphs() != nullptr) prefetch_.plan_coarsely();
  device.add_reclaimer(*this);
}

Runtime::Impl::~Impl() {
  engine_.device().remove_reclaimer(*this);
  try {
    if (streams_.step()) await_aborted();
    streams_.step().reset();
    streams_.wait(streams_.latest());  // all memory leaves
  } catch (const std::exception&) {
    // Stream failures were reported by the calls that waited.
  }
}

// Waits for all work.
void Runtime::Impl::settle() {
  streams_.wait(streams_.latest());
  streams_.require();
}

void Runtime::Impl::require_no_step(const char* call) {
  if (streams_.step()) {
    throw UsageError(fmt::format("{} inside a step; call end_step or abort_step first", call));
  }
}

void Runtime::Impl::reserve(SequenceId id, int64_t tokens, int step_tokens) {
  require_no_step("reserve");
  require_no_chunk("reserve", id);
  memory_.reserve(id, tokens, step_tokens);
}

SequencePages& Runtime::Impl::pages_between_steps(const char* call) {
  require_no_step(call);
  return pages_;
}

// An error names all the memory that a sequence needs, not only the first part that does not fit.
SequenceId Runtime::Impl::fork(SequenceId id, int64_t tokens) {
  require_no_step("fork");
  require_no_chunk("fork", id);
  KvSequence& parent = sequences_.find_usable(id);
  require_resume_point("fork at token", parent, tokens);
  parent.rows().load(pages_of(tokens) - 1, pages_of(tokens));
  return sequences_.fork(parent, tokens, stream_for_memories(parent));
}

void Runtime::Impl::truncate(SequenceId id, int64_t tokens) {
  require_no_step("truncate");
  require_no_chunk("truncate", id);
  KvSequence& sequence = sequences_.find_usable(id);
  require_resume_point("truncate to", sequence, tokens);
  if (sequence.rows().memory().copies > 0) streams_.wait_for(sequence);  // some of them leave
  sequence.rows().load(pages_of(tokens) - 1, pages_of(tokens));
  sequence.truncate(tokens);
}

void Runtime::Impl::mark_resume_point(SequenceId id) {
  require_no_step("mark_resume_point");
  sequences_.find_usable(id).mark_turn();
}

void Runtime::Impl::hold_resume_point(SequenceId id, int64_t tokens) {
  require_no_step("hold_resume_point");
  if (tokens < 1)
    throw UsageError(fmt::format("hold_resume_point: {}; allowed: 1 or more", tokens));
  sequences_.find_usable(id).hold(tokens);
}

double Runtime::Impl::read_back_seconds(const KvSequence& sequence) const {
  const SequenceRows& rows = sequence.rows();
  if (settings_.access() == RowAccess::kLocal || rows.copied()) return 0;
  const auto copies = rows.view().copies;
  const int64_t pages = pages_of(sequence.length()) -
                        std::count_if(copies.begin(), copies.end(),
                                      [](const std::byte* copy) { return copy != nullptr; });
  return static_cast<double>(std::max<int64_t>(pages, 0) * settings_.layout.row_block_bytes()) /
         settings_.rates.link_bandwidth;
}

SequenceInfo Runtime::Impl::info(SequenceId id) const {
  const KvSequence& sequence = sequences_.find(id);
  const PendingPages* const pending = sequence.rows().view().pending;
  int64_t held = sequence.held();
  if (held > sequence.length() || sequence.resume_point(held) != held) held = 0;
  return {.length = sequence.length(),
          .rollback_tokens = sequence.rollback_tokens(),
          .first_page = sequence.first_page(),
          .max_decoded = max_decoded(sequence),
          .max_drafted = max_drafted(sequence),
          .read_back_seconds = read_back_seconds(sequence),
          .held = held,
          .pending = pending != nullptr,
          .lost = pending != nullptr && pending->lost()};
}

void Runtime::Impl::set_rollback_tokens(SequenceId id, int64_t tokens) {
  require_no_step("set_rollback_tokens");
  require_no_chunk("set_rollback_tokens", id);
  if (tokens < 0)
    throw UsageError(fmt::format("set_rollback_tokens: {}; allowed: 0 or more", tokens));
  sequences_.find_usable(id).set_rollback_tokens(tokens);
}

void Runtime::Impl::free(SequenceId id) {
  require_no_step("free");
  if (chunk_ && chunk_->sequence == id) drop_chunk(id);
  streams_.wait_for(sequences_.find(id));  // its private memory leaves
  sequences_.free(id);
}

void Runtime::Impl::export_pages(SequenceId id, int64_t first, std::span<const PageSpans> pages) {
  require_no_step("export_pages");
  require_no_chunk("export_pages", id);
  // Only the last page may be without slices.
  if (!pages.empty() && !pages.front().slices.empty()) code_slices(id);
  pages_.export_pages(id, first, pages);
}

void Runtime::Impl::import_pages(SequenceId id, int64_t tokens,
                                 std::span<const ConstPageSpans> pages) {
  require_no_chunk("import_pages", id);
  pages_between_steps("import_pages").import_pages(id, tokens, pages);
}

const Stream& Runtime::Impl::stream_for_memories(const KvSequence& sequence) {
  if (!sequence.memories().empty()) streams_.order(streams_.latest());
  return engine_.control_stream();
}

void Runtime::Impl::export_state(SequenceId id, const StatePoint& point, size_t offset,
                                 std::span<std::byte> bytes) {
  require_no_step("export_state");
  require_no_chunk("export_state", id);
  const KvSequence& sequence = sequences_.find_usable(id);
  streams_.wait_for(sequence);  // the host reads snapshots
  sequences_.find_usable(id);
  require_linear("export_state", sequence)
      .export_state(point, offset, bytes, stream_for_memories(sequence).view());
}

void Runtime::Impl::import_state(SequenceId id, const StatePoint& point, size_t offset,
                                 std::span<const std::byte> bytes) {
  require_no_step("import_state");
  require_no_chunk("import_state", id);
  KvSequence& sequence = sequences_.find_usable(id);
  LinearState& state = require_linear("import_state", sequence);
  MemoryGuard guard(streams_, prefetch_);
  guard.watch(sequence);
  memory_.reserve_memories(sequence);
  state.import_state(sequence.length(), point, offset, bytes, stream_for_memories(sequence).view());
  guard.keep();
}

// Stored pages have slices, also those of a short sequence, which needs none.
void Runtime::Impl::code_slices(SequenceId id) {
  KvSequence& sequence = sequences_.find_usable(id);
  if (sequence.slices().coded() || sequence.length() == 0) return;
  MemoryGuard guard(streams_, prefetch_);
  guard.watch(sequence);
  settle();  // descriptors of a step are used
  sequences_.find_usable(id);
  sequence.reserve_slices();
  DescriptorBuffer& slot = streams_.slots().front();
  slot.ensure(1);
  streams_.note_control_work(id);
  describer_.code(sequence, slot);
  guard.keep();
}

KvMemory Runtime::Impl::memory() const {
  KvMemory memory;
  memory.device_scratch = engine_.bytes() + recorder_.bytes();
  for (const DescriptorBuffer& slot : streams_.slots()) memory.device_scratch += slot.bytes();
  memory.device_extra += engine_.scratch().wide_bytes() + chunk_rows_.bytes();
  sequences_.add_to(memory);
  return memory;
}

// Graphs go first: they only cost time to record again.
bool Runtime::Impl::reclaim(MemorySpace space, size_t bytes) {
  if (memory_.takes_leftovers()) return false;
  if (space == MemorySpace::kDevice && recorder_.bytes() > 0) {
    recorder_.clear();
    return true;
  }
  return memory_.reclaim(space, bytes);
}

FetchMetrics Runtime::Impl::metrics() {
  settle();
  return engine_.counters().read(settings_.layout, engine_.control());
}

void Runtime::Impl::reset_metrics() {
  settle();
  engine_.counters().reset(engine_.control());
}

void Runtime::Impl::set_predictor(Predictor* predictor) {
  require_no_step("set_predictor");
  settle();  // later steps are planned differently
  recorder_.clear();
  prefetch_.set_predictor(predictor);
}

Runtime::Runtime(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
                 const std::vector<int16_t>& slice_dims, int64_t max_context, int32_t max_steps)
    : impl_(std::make_unique<Impl>(device, config, geometry, row_dtype, slice_dims, max_context,
                                   max_steps)) {}
Runtime::~Runtime() = default;
const Geometry& Runtime::geometry() const { return impl_->geometry(); }
const RuntimeTraits& Runtime::traits() const { return impl_->traits(); }
SequenceId Runtime::create() { return impl_->sequences().create(); }
KvMemory Runtime::estimate_memory(int64_t tokens, int step_tokens, int64_t rollback_tokens) const {
  return impl_->step_memory().estimate(tokens, step_tokens, rollback_tokens);
}
uint64_t Runtime::min_device_bytes(int64_t tokens, int step_tokens) const {
  return impl_->step_memory().min_device_bytes(tokens, step_tokens);
}
void Runtime::set_rollback_tokens(SequenceId sequence, int64_t tokens) {
  impl_->set_rollback_tokens(sequence, tokens);
}
int64_t Runtime::resume_point(SequenceId sequence, int64_t tokens) const {
  return impl_->sequences().find(sequence).resume_point(tokens);
}
void Runtime::reserve(SequenceId sequence, int64_t tokens, int step_tokens) {
  impl_->reserve(sequence, tokens, step_tokens);
}
SequenceId Runtime::fork(SequenceId sequence, int64_t tokens) {
  return impl_->fork(sequence, tokens);
}
void Runtime::truncate(SequenceId sequence, int64_t tokens) { impl_->truncate(sequence, tokens); }
void Runtime::free(SequenceId sequence) { impl_->free(sequence); }
int64_t Runtime::length(SequenceId sequence) const {
  return impl_->sequences().find(sequence).length();
}
void Runtime::set_predictor(Predictor* predictor) { impl_->set_predictor(predictor); }
void Runtime::mark_resume_point(SequenceId sequence) { impl_->mark_resume_point(sequence); }
void Runtime::hold_resume_point(SequenceId sequence, int64_t tokens) {
  impl_->hold_resume_point(sequence, tokens);
}
SequenceInfo Runtime::info(SequenceId sequence) const { return impl_->info(sequence); }
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
std::span<const LinearPart> Runtime::linear_parts() { return impl_->linear_parts(); }
void Runtime::end_step(std::span<const int> kept) { impl_->end_step(kept); }
void Runtime::abort_step() { impl_->abort_step(); }
uint64_t Runtime::chunk_bytes(SequenceId sequence, int64_t tokens) const {
  return impl_->chunk_bytes(sequence, tokens);
}
uint64_t Runtime::chunk_room() const { return impl_->chunk_room(); }
void Runtime::make_chunk_room(uint64_t bytes) { impl_->make_chunk_room(bytes); }
void Runtime::open_chunk(SequenceId sequence, int tokens) { impl_->open_chunk(sequence, tokens); }
void Runtime::begin_piece(SequenceId sequence, int layer, int tokens) {
  impl_->begin_piece(sequence, layer, tokens);
}
void Runtime::begin_linear_piece(SequenceId sequence, int layer, int tokens, StreamView stream) {
  impl_->begin_linear_piece(sequence, layer, tokens, stream);
}
void Runtime::end_piece() { impl_->end_piece(); }
void Runtime::close_chunk(SequenceId sequence) { impl_->close_chunk(sequence); }
void Runtime::drop_chunk(SequenceId sequence) { impl_->drop_chunk(sequence); }
void Runtime::read(SequenceId sequence, int layer, int64_t first, TensorView k, TensorView v,
                   StreamView stream) {
  impl_->read(sequence, layer, first, k, v, stream);
}
std::vector<StatePoint> Runtime::states(SequenceId sequence) const {
  const LinearState* const state = impl_->sequences().find(sequence).linear();
  return state != nullptr ? state->points() : std::vector<StatePoint>();
}
Runtime::Exchange Runtime::exchange() { return Exchange(*impl_); }
void Runtime::Exchange::export_pages(SequenceId sequence, int64_t first,
                                     std::span<const PageSpans> pages) {
  impl_.export_pages(sequence, first, pages);
}
void Runtime::Exchange::import_pages(SequenceId sequence, int64_t tokens,
                                     std::span<const ConstPageSpans> pages) {
  impl_.import_pages(sequence, tokens, pages);
}
void Runtime::Exchange::export_state(SequenceId sequence, const StatePoint& point, size_t offset,
                                     std::span<std::byte> bytes) {
  impl_.export_state(sequence, point, offset, bytes);
}
void Runtime::Exchange::import_state(SequenceId sequence, const StatePoint& point, size_t offset,
                                     std::span<const std::byte> bytes) {
  impl_.import_state(sequence, point, offset, bytes);
}
void Runtime::Exchange::attach_pages(SequenceId sequence, std::shared_ptr<PendingPages> pending,
                                     int64_t pages) {
  impl_.pages_between_steps("attach_pages").attach(sequence, std::move(pending), pages);
}
bool Runtime::Exchange::load_more(SequenceId sequence, size_t max_bytes) {
  impl_.pages_between_steps("load_more");
  return impl_.sequences().find_usable(sequence).rows().load_more(max_bytes);
}
KvMemory Runtime::memory() const { return impl_->memory(); }
FetchMetrics Runtime::metrics() { return impl_->metrics(); }
void Runtime::reset_metrics() { impl_->reset_metrics(); }

}  // namespace fasa
