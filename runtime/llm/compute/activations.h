// Activation memory of a step, shared by all layers.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/model/panel_kernel.h"
#include "offload/device.h"
#include "runtime/base/dtype.h"
#include "runtime/base/tensor_view.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

// Device arrays with the experts chosen for each of a step's tokens: see kernels/expert_params.h.
struct ExpertSpace {
  int32_t* chosen = nullptr;   // [tokens, experts.chosen]
  float* weights = nullptr;    // [tokens, experts.chosen]
  int32_t* experts = nullptr;  // laid out as ExpertPairs::experts
  int32_t* rows = nullptr;
  int32_t* first = nullptr;
  int32_t* places = nullptr;
};

// All activations of one step, [tokens, ...] each. Device memory, except the two host buffers.
class Activations {
 public:
  Activations() = default;
  // Sized for `tokens` tokens, with logits for `rows` of them.
  Activations(Device& device, const ModelConfig& config, DType dtype, int64_t tokens, int64_t rows);
  // Device memory that the constructor takes. kPacked: host code computes, one MLA head at a time.
  static uint64_t device_bytes(const ModelConfig& config, DType dtype, PanelOrder order,
                               int64_t tokens, int64_t rows);

  int64_t tokens() const { return tokens_; }
  int64_t rows() const { return rows_; }

  float* residual() const { return at<float>(at_.residual); }    // [hidden]
  float* result() const { return at<float>(at_.result); }        // largest projection output
  std::byte* input() const { return at<std::byte>(at_.input); }  // largest projection input
  // What a layer writes for its attention.
  std::byte* qkv() const { return at<std::byte>(at_.qkv); }
  size_t qkv_bytes() const { return at_.qkv_end - at_.qkv; }
  float* layer_inputs() const { return at<float>(at_.layer_inputs); }  // [layers, layer_input]
  std::byte* attended() const { return at<std::byte>(at_.attended); }  // [query_heads, value_dim]
  // [query_heads]: log-sum-exp of each softmax; null unless a part of the family needs it.
  float* lse() const { return at_.with_lse ? at<float>(at_.lse) : nullptr; }
  // MLA: input of the per-head projections (kernels: all heads at once), or the low-rank query.
  std::byte* head_input() const { return at<std::byte>(at_.head_input); }
  float* head_result() const { return at<float>(at_.head_result); }
  // [rotary_dims / 2], of one of the model's rotations.
  float* cosines(int rotation = 0) const { return at<float>(at_.cosines) + rotation * at_.angles; }
  float* sines(int rotation = 0) const { return at<float>(at_.sines) + rotation * at_.angles; }
  // For layers with experts: weights of all experts, 0 for those not chosen [experts.count] (for
  // kernels, the router's logits); the sum of the experts' outputs [hidden]; the input of one
  // expert's tokens [hidden]; the output of its second projection. Kernels process all chosen
  // experts of a token at once: result() and activated() are large enough for that.
  float* routed() const { return at<float>(at_.routed); }
  float* mixed() const { return at<float>(at_.mixed); }
  // Layers with an MLP beside their experts: the router's input [hidden], both results [hidden].
  std::byte* router_input() const { return at<std::byte>(at_.router_input); }
  float* beside() const { return at<float>(at_.beside); }
  std::byte* gathered() const { return at<std::byte>(at_.gathered); }
  std::byte* activated() const { return at<std::byte>(at_.activated); }
  ExpertSpace experts() const;  // for kernels
  // Layers with linear attention: b and a [2 x value_heads]. Gates of attention's output
  // [query_heads x head_dim].
  float* linear_gates() const { return at<float>(at_.linear_gates); }
  float* output_gates() const { return at<float>(at_.output_gates); }
  float* logits() const { return at<float>(at_.logits); }  // [rows, vocab]
  float* host_embeddings() const { return host_.as<float>(); }
  float* host_layer_inputs() const { return host_layer_inputs_.as<float>(); }
  float* host_logits() const { return host_logits_.as<float>(); }

 private:
  // Byte offsets in the device's memory, and its size.
  struct Offsets {
    size_t residual = 0, result = 0, input = 0, qkv = 0, qkv_end = 0, layer_inputs = 0;
    size_t attended = 0, lse = 0, head_input = 0, head_result = 0, cosines = 0, sines = 0;
    size_t routed = 0, mixed = 0, router_input = 0, beside = 0, gathered = 0, activated = 0;
    size_t chosen = 0, pairs = 0, linear_gates = 0, output_gates = 0, logits = 0;
    size_t bytes = 0;
    int64_t angles = 0;      // elements of one rotation, all tokens
    int64_t pair_count = 0;  // all tokens
    bool with_lse = false;

    Offsets() = default;
    Offsets(const ModelConfig& config, DType dtype, PanelOrder order, int64_t tokens, int64_t rows);

   private:
    size_t take(int64_t elements, int64_t element_bytes);
    void add_experts(const ModelConfig& config, DType dtype, PanelOrder order, int64_t tokens);
  };
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(device_.data() + offset);
  }
  int64_t tokens_ = 0;
  int64_t rows_ = 0;
  Offsets at_;
  Buffer device_;
  Buffer host_;
  Buffer host_layer_inputs_;
  Buffer host_logits_;
};

}  // namespace fasa
