#include "runtime/synthetic/synthetic_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/slice_format.h"
#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/synthetic/synthetic_inputs.h"

namespace fasa {
namespace {

constexpr int kFillTokens =
    1024;  // appended at a time: a write-back buffer of so many rows is device memory
// Host rows share this much physical memory: writes overwrite each other, and only a run that
// computes reads them.
constexpr uint64_t kHostAliasBytes = uint64_t{64} << 20;

TransferTotals difference(const TransferTotals& now, const TransferTotals& before) {
  return {.h2d_bytes = now.h2d_bytes - before.h2d_bytes,
          .d2h_bytes = now.d2h_bytes - before.d2h_bytes,
          .h2d_operations = now.h2d_operations - before.h2d_operations,
          .d2h_operations = now.d2h_operations - before.d2h_operations,
          .h2d_seconds = now.h2d_seconds - before.h2d_seconds,
          .d2h_seconds = now.d2h_seconds - before.d2h_seconds};
}

}  // namespace

DeviceOptions SyntheticOptions::device_options() const {
  DeviceOptions options = config.device_options();
  options.name = "emulated";
  options.memory_bandwidth = memory_bandwidth;
  options.kernels = kernels;
  options.host_alias_bytes = kHostAliasBytes;
  return options;
}

std::vector<int16_t> SyntheticOptions::slice_dims() const {
  const int chunks = config.effective_tip_chunks(geometry.chunks());
  std::vector<int16_t> dims;
  for (int head = 0; head < geometry.layers * geometry.kv_heads; ++head) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const Geometry::Pair pair = geometry.chunk_dims(chunk);
      dims.push_back(static_cast<int16_t>(pair.first));
      dims.push_back(static_cast<int16_t>(pair.second));
    }
  }
  return dims;
}

void SyntheticOptions::validate() const {
  geometry.validate();
  config.validate();
  config.validate_for(geometry);
  require(sequences >= 1, "sequences", sequences, "1 or more");
  require(tokens >= 1 && tokens <= INT32_MAX / 2, "tokens", tokens, "1 to 1073741823");
  require(step_tokens >= 1 && step_tokens <= kPageTokens, "step_tokens", step_tokens,
          fmt::format("1 to {}", kPageTokens));
  require(max_steps >= 1 && max_steps <= INT32_MAX / 2, "max_steps", max_steps, "1 to 1073741823");
}

class SyntheticDecode::Impl {
 public:
  Impl(const SyntheticOptions& settings, SelectionTrace trace);

  SyntheticStep step();
  Runtime& runtime() { return runtime_; }
  SyntheticDevice& device() { return device_; }

 private:
  bool computes() const { return settings_.compute == SyntheticCompute::kReal; }
  void fill();
  void append_chunk(SequenceId sequence, int tokens);
  void enqueue_step(int tokens);
  void read_weights(uint64_t bytes, int layer);
  void move_by_link(int tokens, uint64_t bytes, CopyKind kind);
  std::vector<StepSequence> decode_step();

  const SyntheticOptions settings_;
  const SelectionTrace trace_;
  const TraceTiling tiling_;
  const std::unique_ptr<Device> inner_;
  SyntheticDevice device_;
  Runtime runtime_;
  Stream stream_;
  Event begun_;
  Event ended_;
  std::unique_ptr<SyntheticInputs> inputs_;
  std::vector<SequenceId> sequences_;
  int64_t done_ = 0;
};

SyntheticDecode::Impl::Impl(const SyntheticOptions& settings, SelectionTrace trace)
    : settings_((settings.validate(), settings)),
      trace_(std::move(trace)),
      tiling_(trace_, settings_.tokens + 1, settings_.seed),
      inner_(open_device(settings_.device_options())),
      device_(static_cast<EmulatedDevice&>(*inner_), &tiling_, settings_.tokens, settings_.compute),
      runtime_(device_, settings_.config, settings_.geometry, settings_.row_dtype,
               settings_.slice_dims(), settings_.tokens + settings_.max_new_tokens()),
      stream_(device_.create_stream(StreamPriority::kNormal, "compute")),
      begun_(device_.create_event()),
      ended_(device_.create_event()) {
  if (trace_.steps() == 0) throw UsageError("the selection trace has no steps");
  fill();
  inputs_ = std::make_unique<SyntheticInputs>(device_, settings_.geometry,
                                              int64_t{settings_.sequences} * settings_.step_tokens,
                                              computes(), settings_.seed + 2, stream_.view());
}

void SyntheticDecode::Impl::append_chunk(SequenceId sequence, int tokens) {
  const StepSequence part{sequence, tokens, StepMode::kPrefill};
  runtime_.begin_step({&part, 1});
  for (int layer = 0; layer < settings_.geometry.storing_layers(); ++layer) {
    inputs_->shift(tokens, stream_.view());
    runtime_.append(layer, inputs_->k(layer, tokens), inputs_->v(layer, tokens), stream_.view());
  }
  static_cast<void>(runtime_.linear_parts());  // states are only memory here
  runtime_.end_step();
}

void SyntheticDecode::Impl::fill() {
  const int64_t chunk = std::min<int64_t>(kFillTokens, settings_.tokens);
  inputs_ = std::make_unique<SyntheticInputs>(device_, settings_.geometry, chunk, computes(),
                                              settings_.seed + 1, stream_.view());
  for (int i = 0; i < settings_.sequences; ++i) {
    const SequenceId sequence = runtime_.create();
    sequences_.push_back(sequence);
    runtime_.reserve(sequence, settings_.tokens + settings_.max_new_tokens(), 1);
    for (int64_t done = 0; done < settings_.tokens; done += chunk) {
      append_chunk(sequence, static_cast<int>(std::min(chunk, settings_.tokens - done)));
      // Work enqueued ahead of the device takes host memory.
      device_.synchronize(stream_.view());
    }
  }
}

std::vector<StepSequence> SyntheticDecode::Impl::decode_step() {
  std::vector<StepSequence> step;
  for (const SequenceId sequence : sequences_) {
    const int tokens = std::min(settings_.step_tokens, runtime_.info(sequence).max_decoded);
    step.push_back({sequence, tokens, StepMode::kDecode});
  }
  return step;
}

void SyntheticDecode::Impl::read_weights(uint64_t bytes, int layer) {
  if (bytes == 0) return;
  device_.launch(
      stream_.view(), "projections",
      [bytes] { return KernelWork{.device_bytes = bytes, .h2d_bytes = 0, .d2h_bytes = 0}; },
      tag_of(layer, Cause::kCompute));
}

// `bytes`: of a token.
void SyntheticDecode::Impl::move_by_link(int tokens, uint64_t bytes, CopyKind kind) {
  if (bytes == 0) return;
  static_cast<EmulatedDevice&>(*inner_).model_copy(bytes * static_cast<uint64_t>(tokens), kind,
                                                   stream_.view(), tag_of(-1, Cause::kControl));
}

// As a model does: embeddings to the device, layers, the output projection, logits back.
void SyntheticDecode::Impl::enqueue_step(int tokens) {
  const WeightLoad& weights = settings_.weights;
  move_by_link(tokens, weights.hidden_bytes, CopyKind::kHostToDevice);
  for (int layer = 0; layer < settings_.geometry.layers; ++layer) {
    read_weights(weights.layer_bytes, layer);
    if (!settings_.geometry.is_shared(layer)) {
      runtime_.append(layer, inputs_->k(layer, tokens), inputs_->v(layer, tokens), stream_.view());
    }
    runtime_.attend(layer, inputs_->q(layer, tokens), inputs_->out(layer, tokens), nullptr,
                    stream_.view());
  }
  read_weights(weights.head_bytes, -1);
  move_by_link(tokens, weights.logit_bytes, CopyKind::kDeviceToHost);
}

SyntheticStep SyntheticDecode::Impl::step() {
  require(done_ < settings_.max_steps, "steps", done_ + 1,
          fmt::format("at most {} (max_steps)", settings_.max_steps));
  runtime_.reset_metrics();
  const std::vector<StepSequence> parts = decode_step();
  int tokens = 0;
  for (const StepSequence& part : parts) tokens += part.tokens;
  inputs_->shift(tokens, stream_.view());
  device_.synchronize(stream_.view());
  const TransferTotals before = device_.transfers();
  device_.record(begun_.view(), stream_.view());
  runtime_.begin_step(parts);
  try {
    enqueue_step(tokens);
    static_cast<void>(runtime_.linear_parts());
    runtime_.end_step();
  } catch (...) {
    runtime_.abort_step();
    throw;
  }
  ++done_;
  device_.record(ended_.view(), stream_.view());
  device_.synchronize(stream_.view());
  SyntheticStep result;
  result.tokens = tokens;
  result.seconds = device_.seconds_at(ended_.view()) - device_.seconds_at(begun_.view());
  result.transfers = difference(device_.transfers(), before);
  result.fetch = runtime_.metrics();
  return result;
}

SyntheticDecode::SyntheticDecode(const SyntheticOptions& settings, SelectionTrace trace)
    : impl_(std::make_unique<Impl>(settings, std::move(trace))) {}
SyntheticDecode::~SyntheticDecode() = default;
SyntheticStep SyntheticDecode::step() { return impl_->step(); }
Runtime& SyntheticDecode::runtime() { return impl_->runtime(); }
Device& SyntheticDecode::device() { return impl_->device(); }
std::vector<OverlapCount> SyntheticDecode::take_overlap() {
  return impl_->device().overlap().take();
}

SyntheticResult SyntheticDecode::run(int warmup, int steps) {
  require(warmup >= 0, "warmup", warmup, "0 or more");
  require(steps >= 1, "steps", steps, "1 or more");
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < warmup; ++i) step();
  SyntheticResult result;
  for (int i = 0; i < steps; ++i) {
    result.steps.push_back(step());
    result.tpot_seconds += result.steps.back().seconds / steps;
  }
  result.memory = runtime().memory();
  result.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace fasa
