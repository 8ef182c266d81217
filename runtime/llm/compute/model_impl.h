// A model on a device: its weights, activations and steps. Model (model.h) is the interface to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/llm/compute/activations.h"
#include "runtime/llm/compute/layer_engine.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/compute/weights.h"
#include "runtime/llm/config/rope_frequencies.h"

namespace fasa {

class Model::Impl {
 public:
  // `trunk`: see Weights.
  Impl(std::unique_ptr<WeightSource> source, ModelConfig config, DType dtype, Device& device,
       const WeightOptions& weights, const Weights* trunk = nullptr);

  const ModelConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  Device& device() const { return device_; }
  StreamView stream() const { return stream_.view(); }
  const Weights& weights() const { return weights_; }
  WeightBytes weight_bytes() const;
  // `source`: of the same files.
  void add_mtp_head(std::unique_ptr<WeightSource> source, const WeightOptions& weights);
  Model* mtp_head() const { return mtp_head_.get(); }

  // Memory for steps of so many tokens and rows of logits. Throws BudgetError.
  void reserve(int64_t tokens, int64_t rows);
  // As in Model.
  void shrink(int64_t tokens);
  uint64_t activation_bytes(int64_t tokens) const;

  std::span<const float> forward(Runtime& runtime, std::span<const int32_t> tokens,
                                 std::span<const StepSequence> step, const ForwardOptions& options);
  std::span<const float> work(Runtime& runtime, const PromptPiece& piece);
  uint64_t layer_expert_bytes() const;

 private:
  // The forward() under way.
  struct OpenForward {
    const StepShape* shape;
    // The layer whose attention is being enqueued. As in Runtime, here and below layers without
    // attention do not count.
    int layer = 0;
  };
  void check(std::span<const int32_t> tokens, std::span<const StepSequence> step,
             const ForwardOptions& options) const;
  StepShape shape_of(Runtime& runtime, std::span<const StepSequence> step,
                     const ForwardOptions& options) const;
  std::span<const LinearPart> linear_parts(Runtime& runtime) const;
  void begin_piece(Runtime& runtime, const PromptPiece& piece) const;
  void copy_experts(const PromptPiece& piece);
  void enqueue(Runtime& runtime, const StepShape& shape, const ForwardOptions& options);
  void attention(Runtime& runtime, int model_layer, const StepShape& shape,
                 const ForwardOptions& options);
  void append(Runtime& runtime, int model_layer, const StepShape& shape);
  void attend(Runtime& runtime, int model_layer, const StepShape& shape);
  void embed(std::span<const int32_t> tokens);
  std::span<const float> finish(const StepShape& shape);  // waits; the logits
  // Host code that reads what the stream has computed in the memory at `data`. Its argument is the
  // distance from there to the host's copy.
  using Report = std::function<void(ptrdiff_t moved)>;
  void publish(const std::byte* data, size_t bytes, Report report);
  void cap_logits(std::span<float> logits) const;
  struct KeysValues {
    ConstTensorView k, v;  // empty if the layer shares those of another
  };
  KeysValues keys_values(int model_layer, int64_t tokens) const;
  // Heads of what a layer has written for attention.
  ConstTensorView part_of_qkv(int layer, int64_t tokens, int first_head, int heads) const;
  ConstTensorView latent_part(ConstTensorView keys) const;

  Device& device_;
  ModelConfig config_;
  DType dtype_;
  Stream stream_;
  LinearLayout linear_;
  Weights weights_;
  std::vector<Rotation> rotations_;
  Activations activations_;
  LayerEngine engine_;
  Buffer published_;  // the observers' copy, where device memory is not host memory
  uint64_t place_;    // part of a graph's key: identifies the activations' location
  std::optional<OpenForward> open_;
  std::optional<ExpertLayerWeights> copied_experts_;  // of the layer at work, by pieces
  std::unique_ptr<Model> mtp_head_;
};

}  // namespace fasa
