#include "runtime/synthetic/synthetic_prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "runtime/synthetic/synthetic_inputs.h"

namespace fasa {
namespace {

class SyntheticPrompt {
 public:
  SyntheticPrompt(const SyntheticOptions& settings, const SyntheticReading& reading)
      : settings_(settings),
        chunk_(static_cast<int>(std::min<int64_t>(reading.chunk, settings.tokens))),
        piece_(reading.piece),
        at_once_(piece_ > 0 ? std::min(piece_, chunk_) : chunk_),
        inner_(open_device(settings.device_options())),
        emulated_(static_cast<EmulatedDevice&>(*inner_)),
        device_(emulated_, nullptr, 0, settings.compute),
        runtime_(device_, settings.config, settings.geometry, settings.row_dtype,
                 settings.slice_dims(), settings.tokens + settings.max_steps),
        stream_(device_.create_stream(StreamPriority::kNormal, "compute")),
        begun_(device_.create_event()),
        ended_(device_.create_event()),
        inputs_(device_, settings.geometry, at_once_, settings.compute == SyntheticCompute::kReal,
                settings.seed, stream_.view()) {}

  SyntheticPromptResult run(const std::function<void(int64_t, int64_t)>& on_step) {
    const SequenceId sequence = runtime_.create();
    runtime_.set_rollback_tokens(sequence, 0);
    runtime_.reserve(sequence, settings_.tokens + settings_.max_steps, at_once_);
    device_.synchronize(stream_.view());
    const TransferTotals before = device_.transfers();
    SyntheticPromptResult result;
    device_.record(begun_.view(), stream_.view());
    for (int64_t done = 0; done < settings_.tokens;) {
      const int tokens = static_cast<int>(std::min<int64_t>(chunk_, settings_.tokens - done));
      const bool last = done + tokens == settings_.tokens;
      if (piece_ > 0) {
        by_layers(sequence, tokens, last, [&](int layers) {
          if (on_step)
            on_step(done + tokens * layers / settings_.geometry.layers, settings_.tokens);
        });
      } else {
        step(sequence, tokens, last);
      }
      done += tokens;
      result.wide_waves = piece_ == 0 && runtime_.memory().device_extra > 0;
      if (on_step) on_step(done, settings_.tokens);
    }
    device_.record(ended_.view(), stream_.view());
    device_.synchronize(stream_.view());
    result.seconds = device_.seconds_at(ended_.view()) - device_.seconds_at(begun_.view());
    result.rows = runtime_.metrics().bytes;  // waits for rows on their way to the host
    const TransferTotals after = device_.transfers();
    result.transfers = {.h2d_bytes = after.h2d_bytes - before.h2d_bytes,
                        .d2h_bytes = after.d2h_bytes - before.d2h_bytes,
                        .h2d_operations = after.h2d_operations - before.h2d_operations,
                        .d2h_operations = after.d2h_operations - before.d2h_operations,
                        .h2d_seconds = after.h2d_seconds - before.h2d_seconds,
                        .d2h_seconds = after.d2h_seconds - before.d2h_seconds};
    return result;
  }

 private:
  // As a model does: embeddings to the device, layers; of the last step the logits.
  void step(SequenceId sequence, int tokens, bool last) {
    const WeightLoad& weights = settings_.weights;
    const auto count = static_cast<uint64_t>(tokens);
    inputs_.shift(tokens, stream_.view());
    const StepSequence part{sequence, tokens, StepMode::kPrefill};
    runtime_.begin_step({&part, 1});
    copy(weights.hidden_bytes * count, CopyKind::kHostToDevice);
    for (int layer = 0; layer < settings_.geometry.layers; ++layer) {
      multiply(
          {.device_bytes = weights.layer_bytes, .operations = weights.layer_operations * count},
          layer);
      if (!settings_.geometry.is_shared(layer)) {
        runtime_.append(layer, inputs_.k(layer, tokens), inputs_.v(layer, tokens), stream_.view());
      }
      runtime_.attend(layer, inputs_.q(layer, tokens), inputs_.out(layer, tokens), nullptr,
                      stream_.view());
    }
    if (last) {
      multiply({.device_bytes = weights.head_bytes, .operations = weights.head_operations}, -1);
      copy(weights.logit_bytes, CopyKind::kDeviceToHost);
    }
    static_cast<void>(runtime_.linear_parts());
    runtime_.end_step();
    device_.synchronize(stream_.view());
  }

  // As OpenPrompt does.
  template <typename OnLayer>
  void by_layers(SequenceId sequence, int tokens, bool ends, const OnLayer& on_layer) {
    const int layers = settings_.geometry.layers;
    if (!residual_) {
      residual_ = device_.allocate(
          MemorySpace::kDevice,
          static_cast<size_t>(chunk_) * std::max<size_t>(1, settings_.weights.hidden_bytes),
          "residual stream");
    }
    runtime_.prompts().open_chunk(sequence, tokens);
    for (int layer = 0; layer < layers; ++layer) {
      for (int done = 0; done < tokens; done += piece_) {
        const int count = std::min(piece_, tokens - done);
        const bool logits = ends && done + count == tokens;
        piece(sequence, layer, count, layer + 1 < layers || logits);
      }
      on_layer(layer + 1);
    }
    // States are only memory here; the work of their layers counts as that of the others.
    for (int layer = 0; layer < settings_.geometry.linear.layers; ++layer) {
      runtime_.prompts().begin_linear_piece(sequence, layer, tokens, stream_.view());
      static_cast<void>(runtime_.linear_parts());
      runtime_.prompts().end_piece();
    }
    if (ends) {
      const WeightLoad& weights = settings_.weights;
      multiply({.device_bytes = weights.head_bytes, .operations = weights.head_operations}, -1);
      copy(weights.logit_bytes, CopyKind::kDeviceToHost);
    }
    runtime_.prompts().close_chunk(sequence);
  }

  void piece(SequenceId sequence, int layer, int tokens, bool attends) {
    const WeightLoad& weights = settings_.weights;
    const auto count = static_cast<uint64_t>(tokens);
    inputs_.shift(tokens, stream_.view());
    runtime_.prompts().begin_piece(sequence, layer, tokens);
    if (layer == 0) copy(weights.hidden_bytes * count, CopyKind::kHostToDevice);
    multiply({.device_bytes = weights.layer_bytes, .operations = weights.layer_operations * count},
             layer);
    if (!settings_.geometry.is_shared(layer)) {
      runtime_.append(layer, inputs_.k(layer, tokens), inputs_.v(layer, tokens), stream_.view());
    }
    if (attends) {
      runtime_.attend(layer, inputs_.q(layer, tokens), inputs_.out(layer, tokens), nullptr,
                      stream_.view());
    }
    runtime_.prompts().end_piece();
    device_.synchronize(stream_.view());
  }

  void multiply(const KernelWork& work, int layer) {
    if (work.device_bytes == 0) return;
    device_.launch(
        stream_.view(), "projections", [work] { return work; }, tag_of(layer, Cause::kPrefill));
  }
  void copy(uint64_t bytes, CopyKind kind) {
    if (bytes > 0) emulated_.model_copy(bytes, kind, stream_.view(), tag_of(-1, Cause::kPrefill));
  }

  const SyntheticOptions& settings_;
  const int chunk_;
  const int piece_;
  const int at_once_;  // tokens of a call
  const std::unique_ptr<Device> inner_;
  EmulatedDevice& emulated_;
  SyntheticDevice device_;
  Runtime runtime_;
  Stream stream_;
  Event begun_;
  Event ended_;
  SyntheticInputs inputs_;
  Buffer residual_;
};

}  // namespace

SyntheticPromptResult synthetic_prompt(const SyntheticOptions& settings,
                                       const SyntheticReading& reading,
                                       const std::function<void(int64_t, int64_t)>& on_step) {
  settings.validate();
  if (reading.chunk < 1 || reading.piece < 0) {
    throw UsageError(fmt::format("chunk = {}, piece = {}; allowed: 1 or more, 0 or more",
                                 reading.chunk, reading.piece));
  }
  if (settings.sequences != 1) {
    throw UsageError(fmt::format("sequences = {}; allowed for a prompt: 1", settings.sequences));
  }
  return SyntheticPrompt(settings, reading).run(on_step);
}

}  // namespace fasa
