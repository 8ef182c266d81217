// A transformer of the llama family on one device: weights, activations, and a step through all
// layers. Its attention goes through a Runtime.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "offload/device.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/base/dtype.h"
#include "runtime/base/tensor_view.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/config/weight_options.h"
#include "runtime/llm/model_config.h"
#include "runtime/llm/weight_bytes.h"
#include "scheduler/prefetch/query_source.h"

namespace fasa {

// Looks at a step's attention inputs, layer by layer. Called as work of the model's stream: on the
// emulated device from another thread, never two calls at once, all before forward() returns. May
// read the views only during the call, and must not throw.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  // q [tokens, query_heads, head_dim] and k [tokens, kv_heads, head_dim] rotated, v [tokens,
  // kv_heads, head_dim], in the model's dtype. `start_position`: that of the first token.
  virtual void on_layer(int layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                        int64_t start_position) = 0;
  // The prediction, made where layer `layer` begins, of the query of layer `layer + ahead`:
  // [tokens, query_heads, head_dim]. After on_layer of the same layer, in steps with
  // estimate_depth.
  virtual void on_estimate(int layer, int ahead, ConstTensorView q) {
    static_cast<void>(layer);
    static_cast<void>(ahead);
    static_cast<void>(q);
  }
};

struct ForwardOptions {
  bool all_logits = false;            // of every token, not only of each sequence's last
  bool no_logits = false;             // of none: a chunk of a prompt that others follow
  LayerObserver* observer = nullptr;  // steps of one sequence only
  // Shows the observer predictions of queries, 1 to so many layers ahead, as far as there are
  // layers. Decode steps only; not beyond what reserve_estimates() gave room for.
  int estimate_depth = 0;
};

class Model {
 public:
  // Loads a Hugging Face folder or a GGUF file into the device's memory. `device` outlives the
  // model. `dtype` of weights and activations: none = f32 below 1 B parameters, else bf16. Throws
  // InputError (file, tensor or key), BudgetError, UsageError (f16, a family or weights that the
  // device does not run).
  static Model load(const std::string& path, Device& device, std::optional<DType> dtype,
                    const WeightOptions& weights = {});
  // A model of this shape with random weights, for measuring (random_weights.h).
  static Model random(const ModelConfig& config, Device& device, std::optional<DType> dtype,
                      uint64_t seed, const WeightOptions& weights = {});
  // The dtype that load() would take for a model of this config.
  static DType auto_dtype(const ModelConfig& config);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelConfig& config() const;
  DType dtype() const;
  Device& device() const;
  StreamView stream() const;  // all work of the model is in its order
  ModelFingerprint fingerprint() const;
  WeightBytes weight_bytes() const;

  // Activations for steps of up to `step_tokens` tokens. Throws BudgetError; the old ones stay.
  void reserve(int step_tokens);

  // Room to predict later layers' queries in decode steps of up to `sequences` sequences, 1 to
  // `max_depth` layers ahead (>= 1, fewer than the model's layers). Grows only, and forward() grows
  // it for steps of more sequences. Throws BudgetError (the old room stays), UsageError.
  void reserve_estimates(int sequences, int max_depth);
  // Predictions from the residual that enters a layer; null until reserve_estimates(). Its
  // estimate() may be called while forward() is under way, for the layer that is, on the model's
  // stream: it shares memory with what the stream does between two attentions. Throws UsageError
  // otherwise. Lives as long as the model's contents: a move of the model keeps it.
  QuerySource* query_source();

  // All layers of the step that `runtime` has open (begin_step); the caller ends it. `tokens`: ids
  // of all sequences' new tokens, in order. Returns f32 logits in host memory, valid until the next
  // call: [sequences, vocab] of each sequence's last token, [tokens, vocab] with all_logits. Waits
  // for the stream. Reserves activations where reserve() was too small or not called. Throws
  // UsageError for ids outside the vocabulary.
  std::span<const float> forward(Runtime& runtime, std::span<const int32_t> tokens,
                                 std::span<const StepSequence> step,
                                 const ForwardOptions& options = {});
  // begin_step, forward, end_step; abort_step where forward throws.
  std::span<const float> step(Runtime& runtime, std::span<const int32_t> tokens,
                              std::span<const StepSequence> step,
                              const ForwardOptions& options = {});

 private:
  class Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fasa
