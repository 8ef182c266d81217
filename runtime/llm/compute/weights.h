// A model's weights: checked against its config, converted, packed, and placed in device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/model/elementwise.h"
#include "offload/device.h"
#include "runtime/base/dtype.h"
#include "runtime/config/weight_options.h"
#include "runtime/llm/compute/matrix.h"
#include "runtime/llm/compute/weight_bytes.h"
#include "runtime/llm/config/model_config.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

class WeightPlan;
class WeightPlanner;

// Weights of a layer with MLA; each head's matrices are separate.
struct LatentWeights {
  Matrix query_down;           // [query_rank, hidden], if query_rank > 0
  Norm query_norm;             // [query_rank]
  Matrix query;                // [query_heads x (plain + rotary_dims), query_rank or hidden]
  Matrix key_down;             // [latent + rotary_dims, hidden]
  Norm key_norm;               // [latent]
  std::vector<Matrix> absorb;  // [query_heads] of [latent, plain]: queries to latent space
  std::vector<Matrix> expand;  // [query_heads] of [value, latent]: latents to head values
};

// A gated MLP.
struct ExpertWeights {
  Matrix gate_up;                       // [2 x intermediate, hidden]
  Matrix down;                          // [hidden, intermediate]
  const float* gate_up_bias = nullptr;  // null if the family has none
  const float* down_bias = nullptr;
};

// Weights of a layer with experts, in place of gate_up and down.
struct ExpertLayerWeights {
  Matrix router;  // [count, hidden]
  const float* router_bias = nullptr;
  const float* router_correction = nullptr;  // see TensorNames
  const float* scale = nullptr;              // [count]: multiplies the experts' weights; or null
  Norm router_norm;   // of the router's input, if the layer has an MLP beside
  Norm mlp_out_norm;  // then also norms of the MLP's output, the experts' input
  Norm norm;          // and their output
  Norm out_norm;
  std::vector<ExpertWeights> routed;  // [count]; empty = the layer has no experts
  ExpertWeights shared;               // no outputs: none
  Matrix shared_gate;  // [1, hidden]: its sigmoid scales the shared expert; no outputs: none
  // Rows of gate and up alternate in gate_up; otherwise all gate rows come first.
  bool interleaved = false;

  bool on_host = false;  // the routed ones

  bool present() const { return !routed.empty(); }
};

// Weights of a layer with linear attention, whose output projection is LayerWeights::output.
struct LinearWeights {
  Matrix input;                   // [channels + value_width, hidden]: queries, keys, values; z
  Matrix gates;                   // [2 x value_heads, hidden]: b, then a
  const float* taps = nullptr;    // [channels, taps]
  const float* factor = nullptr;  // [value_heads]: of the decay, negative
  const float* bias = nullptr;    // [value_heads]: of a
  const float* norm = nullptr;    // [value_dim]

  bool present() const { return taps != nullptr; }
};

// Adds the layer's part of the input per layer: norm(projection(f(gate x) * input)).
struct LayerInputWeights {
  Matrix gate;        // [layer_input, hidden]
  Matrix projection;  // [hidden, layer_input]
  Norm norm;

  bool present() const { return gate.outputs() > 0; }
};

// Vectors are f32 in device memory; null if the family has none.
struct LayerWeights {
  LatentWeights mla;
  LinearWeights linear;
  Matrix output_gate;  // [query_heads x head_dim, hidden]; no outputs: none
  // [(query_heads + 2 kv_heads) x head_dim, hidden]; without the parts that a layer does not have
  Matrix qkv;
  Matrix output;   // [hidden, query_heads x head_dim], with MLA [hidden, query_heads x value]
  Matrix gate_up;  // [2 x intermediate, hidden], without a gate [intermediate, hidden]
  Matrix down;     // [hidden, intermediate]
  ExpertLayerWeights experts;
  LayerInputWeights input;
  Norm attention_norm;  // none() if the family has none
  Norm attention_out_norm;
  Norm mlp_norm;
  Norm mlp_out_norm;
  const float* qkv_bias = nullptr;
  const float* output_bias = nullptr;
  const float* sinks = nullptr;  // [query_heads]
  const float* gate_up_bias = nullptr;
  const float* down_bias = nullptr;
  const float* factor = nullptr;  // [1]: multiplies the layer's result
  Norm query_norm;                // [head_dim], or with kPerHead and kTogether [heads, head_dim]
  Norm key_norm;
  Norm value_norm;
};

// Input of a head of multi-token prediction: projection(norm(embedding), norm(hidden state)).
struct MtpWeights {
  Norm token_norm;    // [hidden]
  Norm state_norm;    // [hidden]
  Matrix projection;  // [hidden, 2 x hidden]
};

class Weights {
 public:
  // Bytes that the weights would take, without loading them. kPacked: for a device where host code
  // multiplies. Throws InputError, as the constructor does.
  static WeightBytes count(std::unique_ptr<WeightSource> source, const ModelConfig& config,
                           DType dtype, PanelOrder order, const WeightOptions& options);
  // Throws InputError naming the tensor that is missing, wrong or unused, before allocating;
  // BudgetError if the device has too little memory. `trunk`: of the model that a head of
  // multi-token prediction belongs to, whose projection to logits it may share; must outlive it.
  Weights(std::unique_ptr<WeightSource> source, const ModelConfig& config, DType dtype,
          Device& device, StreamView stream, const WeightOptions& options = {},
          const Weights* trunk = nullptr);

  const LayerWeights& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  const Matrix& head() const { return head_; }
  const MtpWeights& mtp() const { return mtp_; }  // of a head of multi-token prediction
  const Norm& embedding_norm() const { return embedding_norm_; }  // without weights: none
  const Norm& final_norm() const { return final_norm_; }
  const float* head_bias() const { return head_bias_; }  // null if the family has none
  // Embeddings stay in the mapped file, which saves device memory: a step reads one row per token.
  // out [hidden].
  void embed(int32_t token, float* out) const;
  // The same of the input per layer, out [layers x layer_input], times 2^-1/2.
  void embed_layers(int32_t token, float* out) const;
  const Matrix& layer_projection() const { return layer_projection_; }
  const Norm& layer_projection_norm() const { return layer_projection_norm_; }
  // The first row of each layer's key projection, as bf16 bits in hex.
  const std::vector<std::string>& key_rows() const { return key_rows_; }

  WeightBytes bytes() const;

 private:
  Weights(std::unique_ptr<WeightSource> source, const ModelConfig& config);
  void lay_out(const ModelConfig& config, const WeightOptions& options, WeightPlan* plan);
  void lay_out_layers(const WeightPlanner& planner, const ModelConfig& config, WeightPlan* plan);
  void lay_out_mtp_head(const ModelConfig& config, const WeightOptions& options, WeightPlan* plan);
  void count_bytes(const WeightPlan& plan);
  void require_alike(int layer, const WeightPlan& plan) const;
  uint64_t expert_scratch() const;

  std::unique_ptr<WeightSource> files_;
  WeightView embeddings_;
  WeightView layer_embeddings_;
  Matrix layer_projection_;  // [layers x layer_input, hidden]
  Norm layer_projection_norm_;
  float layer_embedding_scale_ = 1;
  float embedding_scale_ = 1;
  size_t chosen_experts_ = 0;
  std::vector<std::string> key_rows_;
  uint64_t planned_bytes_ = 0;
  uint64_t planned_host_bytes_ = 0;
  uint64_t kernel_scratch_ = 0;
  Buffer memory_;
  Buffer host_memory_;  // experts, if on the host
  std::vector<LayerWeights> layers_;
  MtpWeights mtp_;
  Matrix head_;
  const float* head_bias_ = nullptr;
  Norm embedding_norm_;
  Norm final_norm_;
};

}  // namespace fasa
