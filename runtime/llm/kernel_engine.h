// A model's own work as kernels of the device (ModelCalls of kernels/calls.h): LayerWork's, step by step,
// with additions to the residual put off until the norm that follows them.
#pragma once

#include "kernels/calls.h"
#include "runtime/llm/kernel_latent_work.h"
#include "runtime/llm/kernel_projection.h"
#include "runtime/llm/layer_engine.h"

namespace fasa {

class KernelEngine final : public LayerEngine {
 public:
  explicit KernelEngine(const EngineParts& parts);

  void reserve(const Activations& larger) override;
  void stage(const StepShape& step) override;
  void begin(const StepShape& step) override;
  void to_attention(int layer) override;
  void query_of(int layer, std::byte* query, OperationTag tag) override;
  void logits() override;

 private:
  // What is still to be added to the residual: the last projection's result, or nothing.
  struct Pending {
    const float* addend = nullptr;
    const float* bias = nullptr;
    Norm norm = {};
  };
  struct Heads {
    int all;  // query heads first, then key heads, then values'
    int query;
    int key;
    int rotation;
    std::byte* out;
  };
  void enqueue(const KernelCall& call) const { parts_.device.enqueue(call, parts_.stream, tag_); }
  void project(const Matrix& matrix, const void* x, int64_t columns, float* y) const {
    projection().enqueue(matrix, x, step_->runs, columns, y, tag_);
  }
  void add_norm(const Norm& norm, AddOrder order, const Pending& pending) const;
  void project_heads(const LayerWeights& layer, const Heads& heads) const;
  void after_attention(int layer);
  size_t frequency_bytes() const;
  size_t product_scratch() const;
  KernelProjection projection() const;
  KernelLatentWork latent_work() const { return {parts_, projection(), *step_, tag_}; }

  const EngineParts parts_;
  Buffer fixed_;    // frequencies, scratch of projections
  Buffer inputs_;   // positions of tokens, tokens of logits: int32
  Buffer staging_;  // the same on the host
  const StepShape* step_ = nullptr;
  Pending pending_;
  OperationTag tag_;  // of what is enqueued now
};

}  // namespace fasa
