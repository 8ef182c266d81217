#include "runtime/llm/compute/layer_engine.h"

#include <algorithm>

#include "runtime/llm/compute/host_sink.h"
#include "runtime/llm/compute/kernel_sink.h"
#include "runtime/llm/compute/layer_work.h"

namespace fasa {

LayerEngine::LayerEngine(const EngineParts& parts) : parts_(parts) {
  if (parts.device.traits().model_calls) kernels_.emplace(parts);
  for (size_t i = 0; i < parts.rotations.size(); ++i) {
    frequencies_.push_back(kernels_ ? kernels_->frequencies(i)
                                    : parts.rotations[i].frequencies.data());
  }
}

void LayerEngine::reserve(const Activations& larger) {
  if (kernels_) kernels_->reserve(larger);
}

void LayerEngine::stage(const StepShape& step) {
  if (kernels_) kernels_->stage(step);
}

void LayerEngine::take_inputs(const StepShape& step, float* residual, float* layer_inputs) {
  step_ = &step;
  inputs_ = kernels_ ? kernels_->copy_staged(step, tag_of(-1, step.cause))
                     : StepInputs{.positions = step.positions.data(),
                                  .logit_rows = step.logit_rows.data(),
                                  .linear = step.linear};
  inputs_.frequencies = frequencies_;
  inputs_.residual = residual;
  inputs_.layer_inputs = layer_inputs;
}

void LayerEngine::copy_embeddings() const {
  const auto copy = [this](float* to, const float* from, int64_t width) {
    if (width == 0) return;
    parts_.device.copy(to, from, static_cast<size_t>(step_->tokens * width) * sizeof(float),
                       CopyKind::kHostToDevice, parts_.stream, tag_of(-1, step_->cause));
  };
  const ModelConfig& config = parts_.config;
  copy(inputs_.residual, parts_.activations.host_embeddings(), config.hidden);
  copy(inputs_.layer_inputs, parts_.activations.host_layer_inputs(), config.layer_inputs());
}

void LayerEngine::begin_piece(const StepShape& step, int layer, float* residual,
                              float* layer_inputs, const ExpertLayerWeights* experts) {
  take_inputs(step, residual, layer_inputs);
  inputs_.experts = experts;
  if (layer == 0) copy_embeddings();
  enqueue("projections", tag_of(tag_layer(layer), step.cause),
          [layer](const LayerWork& work) { work.begin_piece(layer); });
}

void LayerEngine::end_piece(int layer) {
  enqueue("projections", tag_of(tag_layer(layer), step_->cause),
          [layer](const LayerWork& work) { work.end_piece(layer); });
}

void LayerEngine::begin(const StepShape& step) {
  take_inputs(step, parts_.activations.residual(), parts_.activations.layer_inputs());
  copy_embeddings();
}

template <typename Work>
void LayerEngine::enqueue(const char* name, OperationTag tag, const Work& work) {
  if (kernels_) {
    KernelSink sink(parts_, kernels_->scratch(), tag);
    return work(LayerWork(parts_, *step_, inputs_, sink));
  }
  parts_.device.launch(
      parts_.stream, name,
      [this, work] {
        HostSink sink(parts_);
        work(LayerWork(parts_, *step_, inputs_, sink));
        return sink.work();
      },
      tag);
}

// Tags count layers as the KV cache does: linear attention belongs to the next layer with rows.
int LayerEngine::tag_layer(int layer) const {
  const ModelConfig& config = parts_.config;
  return std::min(config.attention_index(layer), config.attention_layers() - 1);
}

void LayerEngine::to_attention(int layer) {
  enqueue("projections", tag_of(tag_layer(layer), step_->cause),
          [layer](const LayerWork& work) { work.to_attention(layer); });
}

void LayerEngine::states() {
  enqueue("projections", tag_of(-1, step_->cause), [](const LayerWork& work) { work.states(); });
}

void LayerEngine::logits() {
  const OperationTag tag = tag_of(-1, step_->cause);
  enqueue("logits", tag, [](const LayerWork& work) { work.logits(); });
  const size_t logits = step_->logit_rows.size() * static_cast<size_t>(parts_.config.vocab_size);
  parts_.device.copy(parts_.activations.host_logits(), parts_.activations.logits(),
                     logits * sizeof(float), CopyKind::kDeviceToHost, parts_.stream, tag);
}

}  // namespace fasa
