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
#include "runtime/llm/matrix.h"
#include "runtime/llm/model_config.h"
#include "runtime/llm/weight_bytes.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

class WeightPlan;

// Weights of a layer with MLA; each head's matrices are separate.
struct LatentWeights {
  Matrix query_down;           // [query_rank, hidden], where queries are projected in two steps
  Norm query_norm;             // [query_rank]
  Matrix query;                // [query_heads x (plain + rotary_dims), query_rank or hidden]
  Matrix key_down;             // [latent + rotary_dims, hidden]
  Norm key_norm;               // [latent]
  std::vector<Matrix> absorb;  // [query_heads] of [latent, plain]: queries into the latent's space
  std::vector<Matrix> expand;  // [query_heads] of [value, latent]: the latent to a head's value
};

// A gated MLP.
struct ExpertWeights {
  Matrix gate_up;                       // [2 x intermediate, hidden]
  Matrix down;                          // [hidden, intermediate]
  const float* gate_up_bias = nullptr;  // null where the family has none
  const float* down_bias = nullptr;
};

// Weights of a layer with experts, in place of gate_up and down.
struct ExpertLayerWeights {
  Matrix router;  // [count, hidden]
  const float* router_bias = nullptr;
  std::vector<ExpertWeights> routed;  // [count]; empty = a layer without
  ExpertWeights shared;               // of no outputs: none
  // A gate's row of gate_up and its up's lie beside each other; else all gates before all ups.
  bool interleaved = false;

  bool present() const { return !routed.empty(); }
};

// Vectors are f32 in device memory; null where the family has none.
struct LayerWeights {
  LatentWeights mla;
  Matrix qkv;      // [(query_heads + 2 kv_heads) x head_dim, hidden]
  Matrix output;   // [hidden, query_heads x head_dim], with MLA [hidden, query_heads x value]
  Matrix gate_up;  // [2 x intermediate, hidden], without a gate [intermediate, hidden]
  Matrix down;     // [hidden, intermediate]
  ExpertLayerWeights experts;
  Norm attention_norm;  // norms of no weight leave everything as it is
  Norm attention_out_norm;
  Norm mlp_norm;
  Norm mlp_out_norm;
  const float* qkv_bias = nullptr;
  const float* output_bias = nullptr;
  const float* sinks = nullptr;  // [query_heads]
  const float* gate_up_bias = nullptr;
  const float* down_bias = nullptr;
  Norm query_norm;  // [head_dim], or with kPerHead and kTogether [heads, head_dim]
  Norm key_norm;
};

class Weights {
 public:
  // What they would take: nothing is loaded. kPacked: on a device for which host code multiplies.
  // Throws InputError, as the constructor does.
  static WeightBytes count(std::unique_ptr<WeightSource> source, const ModelConfig& config,
                           DType dtype, PanelOrder order, const WeightOptions& options);
  // Throws InputError naming what is missing, wrong or left over, before any memory is taken;
  // BudgetError where the device has too little.
  Weights(std::unique_ptr<WeightSource> source, const ModelConfig& config, DType dtype,
          Device& device, StreamView stream, const WeightOptions& options = {});

  const LayerWeights& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  const Matrix& head() const { return head_; }
  const Norm& embedding_norm() const { return embedding_norm_; }  // of no weight: none
  const Norm& final_norm() const { return final_norm_; }
  const float* head_bias() const { return head_bias_; }  // null where the family has none
  // Embeddings stay in the mapped file: a step reads one row per token, and the device saves the
  // memory. out [hidden].
  void embed(int32_t token, float* out) const;
  // Per layer, the first row of the key projection: bf16 bits in hex.
  const std::vector<std::string>& key_rows() const { return key_rows_; }

  WeightBytes bytes() const;
  // Bytes of the routed experts' weights.
  bool experts_on_host() const { return planned_host_bytes_ > 0; }

 private:
  Weights(std::unique_ptr<WeightSource> source, const ModelConfig& config);
  void lay_out(const ModelConfig& config, const WeightOptions& options, WeightPlan* plan);
  void require_alike(int layer, const WeightPlan& plan) const;
  uint64_t expert_scratch() const;

  std::unique_ptr<WeightSource> files_;
  WeightView embeddings_;
  float embedding_scale_ = 1;
  size_t chosen_experts_ = 0;
  std::vector<std::string> key_rows_;
  uint64_t planned_bytes_ = 0;
  uint64_t planned_host_bytes_ = 0;
  uint64_t kernel_scratch_ = 0;
  Buffer memory_;
  Buffer host_memory_;  // experts, where they lie there
  std::vector<LayerWeights> layers_;
  Matrix head_;
  const float* head_bias_ = nullptr;
  Norm embedding_norm_;
  Norm final_norm_;
};

}  // namespace fasa
