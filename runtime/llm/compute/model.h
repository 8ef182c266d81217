// A transformer of the llama family on one device: weights, activations, and a step through all
// layers. Attention is computed by a Runtime.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "offload/device.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/base/dtype.h"
#include "runtime/base/tensor_view.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/config/weight_options.h"
#include "runtime/llm/compute/weight_bytes.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

// Observes a step's attention inputs, layer by layer. Called as work of the model's stream (on the
// emulated device from another thread), one call at a time, all before forward() returns. The views
// are valid only during the call. Must not throw.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  // q [tokens, query_heads, head_dim] and k [tokens, kv_heads, head_dim] rotated, v [tokens,
  // kv_heads, head_dim], in the model's dtype; k and v are empty if the layer shares those of
  // another (Geometry::kv_layer). `start_position`: the position of the first token.
  virtual void on_layer(int layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                        int64_t start_position) = 0;
};

struct ForwardOptions {
  bool all_logits = false;            // for every token, not only each sequence's last
  bool no_logits = false;             // none, for a prompt chunk that is not the last
  bool graphs = true;                 // false: enqueues call by call, with device.graphs = on too
  LayerObserver* observer = nullptr;  // only for steps of one sequence
  // Hidden states of all tokens [tokens, hidden], on the device: the final norm's output, for a
  // head of multi-token prediction; null: not wanted.
  float* states = nullptr;
  // For such a head: those of the tokens before its own, by the model that it belongs to or by
  // itself.
  float* given_states = nullptr;
};

// Some tokens of an open chunk (PromptChunks::open_chunk()) in one of the model's layers.
struct PromptPiece {
  SequenceId sequence = {};
  int layer = 0;
  std::span<const int32_t> tokens = {};
  int64_t start = 0;              // position of the first token
  float* residual = nullptr;      // [tokens, hidden], on the device; from layer to layer
  float* layer_inputs = nullptr;  // [tokens, layer_inputs()], likewise
  // Memory on the device for a copy of the layer's experts, which its first piece makes; null: they
  // are read where they are. See Model::layer_expert_bytes().
  std::byte* experts = nullptr;
  bool first = false;       // of its layer's pieces
  bool attends = true;      // else only keys and values are made: nothing reads the result
  bool logits = false;      // of the last token, in the last layer
  float* states = nullptr;  // in the last layer, see ForwardOptions
};

class Model {
 public:
  // Loads a Hugging Face folder or a GGUF file into the device's memory. `device` must outlive the
  // model. `dtype` of weights and activations: none = f32 below 1 B parameters, else bf16. Throws
  // InputError (file, tensor or key), BudgetError, and UsageError (f16, or a family or weights that
  // the device does not support). `context`: see ModelConfig::load().
  static Model load(const std::string& path, Device& device, std::optional<DType> dtype,
                    const WeightOptions& weights = {}, int64_t context = 0);
  // A model of this shape with random weights, for measurements (random_weights.h).
  static Model random(const ModelConfig& config, Device& device, std::optional<DType> dtype,
                      uint64_t seed, const WeightOptions& weights = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelConfig& config() const;
  DType dtype() const;
  Device& device() const;
  StreamView stream() const;  // all of the model's work is enqueued on it
  ModelFingerprint fingerprint() const;
  WeightBytes weight_bytes() const;  // with those of mtp_head()
  // The head of multi-token prediction, a model of one layer; null: none was loaded
  // (WeightOptions::mtp_head).
  Model* mtp_head() const;

  // Allocates activations for steps of up to `step_tokens` tokens. Throws BudgetError; the old ones
  // then stay.
  void reserve(int step_tokens);
  // Gives up activations for steps of more than `step_tokens` tokens; later ones allocate them
  // again. The last logits are lost.
  void shrink(int step_tokens);
  // Device memory that reserve(step_tokens) would take in addition.
  uint64_t activation_bytes(int step_tokens) const;

  // Runs all layers of the step that `runtime` has open (begin_step); the caller ends the step.
  // `tokens`: ids of all sequences' new tokens, in order. Returns f32 logits in host memory, valid
  // until the next call: [sequences, vocab] of each sequence's last token, or [tokens, vocab] with
  // all_logits. Waits for the stream. Allocates activations if reserve() was not called or reserved
  // too little. Throws UsageError for ids outside the vocabulary.
  std::span<const float> forward(Runtime& runtime, std::span<const int32_t> tokens,
                                 std::span<const StepSequence> step,
                                 const ForwardOptions& options = {});
  // The most bytes of a layer's experts, if they are read over the link; else 0.
  uint64_t layer_expert_bytes() const;
  // Works on a piece of the runtime's open chunk, and waits for it. Returns the logits if they are
  // wanted. After an error the chunk can only be dropped.
  std::span<const float> work(Runtime& runtime, const PromptPiece& piece);
  // Calls begin_step, forward and end_step; abort_step if forward throws.
  std::span<const float> step(Runtime& runtime, std::span<const int32_t> tokens,
                              std::span<const StepSequence> step,
                              const ForwardOptions& options = {});
  // The same for decode steps with drafts. `states`: see ForwardOptions. `judge` gets the logits of
  // all tokens [tokens, vocab], and returns how many of each sequence's stay, see
  // Runtime::end_step().
  using Judge = std::function<std::vector<int>(std::span<const float> logits)>;
  void step_with_drafts(Runtime& runtime, std::span<const int32_t> tokens,
                        std::span<const StepSequence> step, const Judge& judge,
                        float* states = nullptr);

 private:
  class Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fasa
