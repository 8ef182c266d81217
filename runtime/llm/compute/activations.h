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

  float* residual() const { return at<float>(residual_); }    // [hidden]
  float* result() const { return at<float>(result_); }        // largest projection output
  std::byte* input() const { return at<std::byte>(input_); }  // largest projection input
  std::byte* qkv() const { return at<std::byte>(qkv_); }  // what a layer writes for its attention
  size_t qkv_bytes() const { return qkv_end_ - qkv_; }
  float* layer_inputs() const { return at<float>(layer_inputs_); }  // [layers, layer_input]
  std::byte* attended() const { return at<std::byte>(attended_); }  // [query_heads, value_dim]
  // [query_heads]: log-sum-exp of each softmax; null unless a part of the family needs it.
  float* lse() const { return with_lse_ ? at<float>(lse_) : nullptr; }
  // MLA: input of the per-head projections (kernels: all heads at once), or the low-rank query.
  std::byte* head_input() const { return at<std::byte>(head_input_); }
  float* head_result() const { return at<float>(head_result_); }
  // [rotary_dims / 2], of one of the model's rotations.
  float* cosines(int rotation = 0) const { return at<float>(cosines_) + rotation * angles_; }
  float* sines(int rotation = 0) const { return at<float>(sines_) + rotation * angles_; }
  // For layers with experts: weights of all experts, 0 for those not chosen [experts.count] (for
  // kernels, the router's logits); the sum of the experts' outputs [hidden]; the input of one
  // expert's tokens [hidden]; the output of its second projection. Kernels process all chosen
  // experts of a token at once: result() and activated() are large enough for that.
  float* routed() const { return at<float>(routed_); }
  float* mixed() const { return at<float>(mixed_); }
  // Layers with an MLP beside their experts: the router's input [hidden], both results [hidden].
  std::byte* router_input() const { return at<std::byte>(router_input_); }
  float* beside() const { return at<float>(beside_); }
  std::byte* gathered() const { return at<std::byte>(gathered_); }
  std::byte* activated() const { return at<std::byte>(activated_); }
  ExpertSpace experts() const;  // for kernels
  // Layers with linear attention: b and a [2 x value_heads]. Gates of attention's output
  // [query_heads x head_dim].
  float* linear_gates() const { return at<float>(linear_gates_); }
  float* output_gates() const { return at<float>(output_gates_); }
  float* logits() const { return at<float>(logits_); }  // [rows, vocab]
  float* host_embeddings() const { return host_.as<float>(); }
  float* host_layer_inputs() const { return host_layer_inputs_.as<float>(); }
  float* host_logits() const { return host_logits_.as<float>(); }

 private:
  // Sets all offsets; returns the total bytes.
  size_t lay_out(const ModelConfig& config, DType dtype, PanelOrder order);
  template <typename Take>
  void lay_out_experts(const ModelConfig& config, DType dtype, PanelOrder order, const Take& take);
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(device_.data() + offset);
  }
  int64_t tokens_ = 0;
  int64_t rows_ = 0;
  int64_t angles_ = 0;  // elements of one rotation, all tokens
  Buffer device_;
  Buffer host_;
  Buffer host_layer_inputs_;
  Buffer host_logits_;
  size_t residual_ = 0, result_ = 0, input_ = 0, qkv_ = 0, attended_ = 0, cosines_ = 0, sines_ = 0,
         logits_ = 0, head_input_ = 0, head_result_ = 0, routed_ = 0, mixed_ = 0, gathered_ = 0,
         activated_ = 0, lse_ = 0, chosen_ = 0, pairs_ = 0;
  size_t qkv_end_ = 0, layer_inputs_ = 0, beside_ = 0, router_input_ = 0, linear_gates_ = 0,
         output_gates_ = 0;
  int64_t pair_count_ = 0;  // all tokens
  bool with_lse_ = false;
};

}  // namespace fasa
