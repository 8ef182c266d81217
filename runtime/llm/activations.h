// The memory of a step between its layers' parts.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/model/panel_kernel.h"
#include "offload/device.h"
#include "runtime/base/dtype.h"
#include "runtime/base/tensor_view.h"
#include "runtime/llm/model_config.h"

namespace fasa {

// Where kernels store which experts a step's tokens are routed to: see kernels/expert_params.h.
struct ExpertSpace {
  int32_t* chosen = nullptr;   // [tokens, experts.chosen]
  float* weights = nullptr;    // the same
  int32_t* experts = nullptr;  // as ExpertPairs'
  int32_t* rows = nullptr;
  int32_t* first = nullptr;
  int32_t* places = nullptr;
};

// All of one step, [tokens, ...] each. Device memory but for the two host parts.
class Activations {
 public:
  Activations() = default;
  // Room for `tokens` tokens, logits for `rows` of them.
  Activations(Device& device, const ModelConfig& config, DType dtype, int64_t tokens, int64_t rows);
  // The device memory of that. kPacked: where host code works, through the heads of MLA one by one.
  static uint64_t device_bytes(const ModelConfig& config, DType dtype, PanelOrder order,
                               int64_t tokens, int64_t rows);

  int64_t tokens() const { return tokens_; }
  int64_t rows() const { return rows_; }

  float* residual() const { return at<float>(residual_); }          // [hidden]
  float* result() const { return at<float>(result_); }              // of a projection, the widest
  std::byte* input() const { return at<std::byte>(input_); }        // of a projection, the widest
  std::byte* qkv() const { return at<std::byte>(qkv_); }            // [qkv]: what attention reads
  std::byte* attended() const { return at<std::byte>(attended_); }  // [query_heads, value_dim]
  // [query_heads]: natural logs of the softmaxes' sums; null where no family's part needs them.
  float* lse() const { return with_lse_ ? at<float>(lse_) : nullptr; }
  // MLA: of a projection of one head, by kernels of all, or the query's small one.
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
  std::byte* gathered() const { return at<std::byte>(gathered_); }
  std::byte* activated() const { return at<std::byte>(activated_); }
  ExpertSpace experts() const;                          // of kernels
  float* logits() const { return at<float>(logits_); }  // [rows, vocab]
  float* host_embeddings() const { return host_.as<float>(); }
  float* host_logits() const { return host_logits_.as<float>(); }

 private:
  // Sets where everything lies; returns the bytes.
  size_t lay_out(const ModelConfig& config, DType dtype, PanelOrder order);
  template <typename Take>
  void lay_out_experts(const ModelConfig& config, DType dtype, PanelOrder order, const Take& take);
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(device_.data() + offset);
  }
  int64_t tokens_ = 0;
  int64_t rows_ = 0;
  int64_t angles_ = 0;  // of all tokens, for one rotation
  Buffer device_;
  Buffer host_;
  Buffer host_logits_;
  size_t residual_ = 0, result_ = 0, input_ = 0, qkv_ = 0, attended_ = 0, cosines_ = 0, sines_ = 0,
         logits_ = 0, head_input_ = 0, head_result_ = 0, routed_ = 0, mixed_ = 0, gathered_ = 0,
         activated_ = 0, lse_ = 0, chosen_ = 0, pairs_ = 0;
  int64_t pair_count_ = 0;  // of all tokens
  bool with_lse_ = false;
};

}  // namespace fasa
