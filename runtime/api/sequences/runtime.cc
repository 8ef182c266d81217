#include "runtime/api/sequences/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/api/settings.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

void require_resume_point(const char* call, const KvSequence& sequence, int64_t tokens) {
  if (tokens < 0 || tokens > sequence.length()) {
    throw UsageError(fmt::format("{} {}; allowed: 0 to the sequence's length, {}", call, tokens,
                                 sequence.length()));
  }
  if (!sequence.rollback.can_truncate_to(tokens)) {
    throw UsageError(
        fmt::format("{} {} of {} tokens: pages that it needs were freed; allowed: 0, or at most {} "
                    "tokens before the end (set_rollback_tokens)",
                    call, tokens, sequence.length(), sequence.rollback.tokens()));
  }
  const int64_t nearest = sequence.rollback.memory_point(tokens);
  if (nearest == tokens) return;
  throw UsageError(
      fmt::format("{} {}: the state of the layers with linear attention is not known there; "
                  "allowed: {}, the nearest point before it (resume_point), and compute the tokens "
                  "from there on again",
                  call, tokens, nearest));
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

Runtime::Runtime(Device& device, const Config& config, const Geometry& geometry, RowDType row_dtype,
                 const std::vector<int16_t>& slice_dims, int64_t max_context, int32_t max_steps)
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
      prompts_(streams_, prefetch_, memory_, describer_),
      exchange_(streams_, prefetch_, memory_, describer_, prompts_, traits_) {
  if (config.device.graphs && device.graphs() != nullptr) prefetch_.plan_coarsely();
  device.add_reclaimer(*this);
}

Runtime::~Runtime() {
  engine_.device().remove_reclaimer(*this);
  try {
    if (streams_.step()) streams_.await_aborted();
    streams_.step().reset();
    streams_.wait(streams_.latest());  // all memory leaves
  } catch (const std::exception&) {
    // Stream failures were reported by the calls that waited.
  }
}

void Runtime::reserve(SequenceId id, int64_t tokens, int step_tokens) {
  memory_.reserve(prompts_.require_idle("reserve", id), tokens, step_tokens);
}

// An error names all the memory that a sequence needs, not only the first part that does not fit.
SequenceId Runtime::fork(SequenceId id, int64_t tokens) {
  KvSequence& parent = prompts_.require_idle("fork", id);
  require_resume_point("fork at token", parent, tokens);
  parent.rows().load(pages_of(tokens) - 1, pages_of(tokens));
  return sequences_.fork(parent, tokens, streams_.for_memories(parent));
}

void Runtime::truncate(SequenceId id, int64_t tokens) {
  KvSequence& sequence = prompts_.require_idle("truncate", id);
  require_resume_point("truncate to", sequence, tokens);
  if (sequence.rows().memory().copies > 0) streams_.wait_for(sequence);  // some of them leave
  sequence.rows().load(pages_of(tokens) - 1, pages_of(tokens));
  sequence.truncate(tokens);
}

void Runtime::mark_resume_point(SequenceId id) {
  streams_.require_no_step("mark_resume_point");
  sequences_.find_usable(id).rollback.mark_turn();
}

void Runtime::hold_resume_point(SequenceId id, int64_t tokens) {
  streams_.require_no_step("hold_resume_point");
  if (tokens < 1)
    throw UsageError(fmt::format("hold_resume_point: {}; allowed: 1 or more", tokens));
  sequences_.find_usable(id).rollback.hold(tokens);
}

double Runtime::read_back_seconds(const KvSequence& sequence) const {
  const SequenceRows& rows = sequence.rows();
  if (settings_.access() == RowAccess::kLocal || rows.copied()) return 0;
  const auto copies = rows.view().copies;
  const int64_t pages = pages_of(sequence.length()) -
                        std::count_if(copies.begin(), copies.end(),
                                      [](const std::byte* copy) { return copy != nullptr; });
  return static_cast<double>(std::max<int64_t>(pages, 0) * settings_.layout.row_block_bytes()) /
         settings_.rates.link_bandwidth;
}

SequenceInfo Runtime::info(SequenceId id) const {
  const KvSequence& sequence = sequences_.find(id);
  const PendingPages* const pending = sequence.rows().view().pending;
  int64_t held = sequence.rollback.held();
  if (held > sequence.length() || sequence.rollback.resume_point(held) != held) held = 0;
  return {.length = sequence.length(),
          .rollback_tokens = sequence.rollback.tokens(),
          .first_page = sequence.rollback.first_page(),
          .max_decoded = max_decoded(sequence),
          .max_drafted = max_drafted(sequence),
          .read_back_seconds = read_back_seconds(sequence),
          .held = held,
          .pending = pending != nullptr,
          .lost = pending != nullptr && pending->lost()};
}

void Runtime::set_rollback_tokens(SequenceId id, int64_t tokens) {
  streams_.require_no_step("set_rollback_tokens");
  prompts_.require_none("set_rollback_tokens", id);
  if (tokens < 0)
    throw UsageError(fmt::format("set_rollback_tokens: {}; allowed: 0 or more", tokens));
  sequences_.find_usable(id).rollback.set_tokens(tokens);
}

void Runtime::free(SequenceId id) {
  streams_.require_no_step("free");
  if (prompts_.is_open(id)) prompts_.drop_chunk(id);
  streams_.wait_for(sequences_.find(id));  // its private memory leaves
  sequences_.free(id);
}

KvMemory Runtime::memory() const {
  KvMemory memory;
  memory.device_scratch = engine_.bytes() + recorder_.bytes();
  for (const DescriptorBuffer& slot : streams_.slots()) memory.device_scratch += slot.bytes();
  memory.device_extra += engine_.scratch().wide_bytes() + prompts_.device_bytes();
  sequences_.add_to(memory);
  return memory;
}

// Graphs go first: they only cost time to record again.
bool Runtime::reclaim(MemorySpace space, size_t bytes) {
  if (memory_.takes_leftovers()) return false;
  if (space == MemorySpace::kDevice && recorder_.bytes() > 0) {
    recorder_.clear();
    return true;
  }
  return memory_.reclaim(space, bytes);
}

FetchMetrics Runtime::metrics() {
  streams_.settle();
  return engine_.counters().read(settings_.layout, engine_.control());
}

void Runtime::reset_metrics() {
  streams_.settle();
  engine_.counters().reset(engine_.control());
}

void Runtime::set_predictor(Predictor* predictor) {
  streams_.require_no_step("set_predictor");
  streams_.settle();  // later steps are planned differently
  recorder_.clear();
  prefetch_.set_predictor(predictor);
}

}  // namespace fasa
