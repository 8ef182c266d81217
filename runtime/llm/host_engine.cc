#include "runtime/llm/host_engine.h"

#include "kernels/cpu/model/cpu_isa.h"

namespace fasa {

void HostEngine::begin(const StepShape& step) {
  step_ = &step;
  work_.emplace(parts_.config, parts_.weights, parts_.activations, parts_.dtype, parts_.rotations,
                step);
  const auto bytes = static_cast<size_t>(step.tokens * parts_.config.hidden) * sizeof(float);
  parts_.device.copy(parts_.activations.residual(), parts_.activations.host_embeddings(), bytes,
                     CopyKind::kHostToDevice, parts_.stream, tag_of(-1, step.cause));
}

// One launch between two attentions: few launches matter where a launch costs microseconds.
void HostEngine::to_attention(int layer) {
  parts_.device.launch(
      parts_.stream, "projections",
      [work = &*work_, layer] {
        KernelWork sum = layer == 0 ? work->begin() : work->after_attention(layer - 1);
        sum.device_bytes += work->before_attention(layer).device_bytes;
        return sum;
      },
      tag_of(layer, step_->cause));
}

void HostEngine::query_of(int layer, std::byte* query, OperationTag tag) {
  parts_.device.launch(
      parts_.stream, "estimate",
      [work = &*work_, layer, query] { return work->query_of(layer, query); }, tag);
}

void HostEngine::logits() {
  const OperationTag tag = tag_of(-1, step_->cause);
  parts_.device.launch(
      parts_.stream, "logits",
      [work = &*work_, last = parts_.config.layers - 1] {
        KernelWork sum = work->after_attention(last);
        sum.device_bytes += work->logits().device_bytes;
        return sum;
      },
      tag);
  const size_t logits = step_->logit_rows.size() * static_cast<size_t>(parts_.config.vocab_size);
  parts_.device.copy(parts_.activations.host_logits(), parts_.activations.logits(),
                     logits * sizeof(float), CopyKind::kDeviceToHost, parts_.stream, tag);
}

std::string host_engine_note() { return onednn_isa_note(); }

}  // namespace fasa
