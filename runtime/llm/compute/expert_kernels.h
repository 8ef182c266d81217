// Layers with experts as device kernels (kernels/expert_params.h); ExpertWork is the host version.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/expert_params.h"
#include "runtime/llm/compute/engine_parts.h"
#include "runtime/llm/compute/work_sink.h"

namespace fasa {

// Holds references: all arguments must outlive it.
class ExpertKernels {
 public:
  // `scratch`: KernelSink::Scratch::packed. Work outside the experts goes to `sink`.
  ExpertKernels(const EngineParts& parts, std::byte* scratch, OperationTag tag, WorkSink& sink)
      : parts_(parts), scratch_(scratch), tag_(tag), sink_(sink) {}

  // The normalised input -> the activations' mixed().
  void run(const ExpertLayerWeights& layer, const std::byte* router_input, RowRuns runs) const;

 private:
  // A matrix that each expert has, for all experts, and its input.
  struct Product {
    Matrix ExpertWeights::*matrix;
    const std::byte* x;
    PairInput input;
    StepMode mode;
  };
  void enqueue(const KernelCall& call) const { parts_.device.enqueue(call, parts_.stream, tag_); }
  void choose(const ExpertLayerWeights& layer, int64_t tokens) const;
  ExpertPairs pairs_of(int64_t tokens) const;
  // Processes the tokens of one run, starting at token `first`.
  void run_experts(const ExpertLayerWeights& layer, int64_t first, const RowRun& run) const;
  void project(const ExpertLayerWeights& layer, const Product& product,
               const ExpertPairs& pairs) const;
  void decode(const ExpertLayerWeights& layer, size_t part, const Product& product,
              const ExpertPairs& pairs) const;
  void prefill(const ExpertLayerWeights& layer, size_t part, const Product& product,
               const ExpertPairs& pairs) const;
  void activate(const ExpertLayerWeights& layer, const ExpertPairs& pairs) const;
  void add_shared(const ExpertLayerWeights& layer, RowRuns runs) const;

  const EngineParts& parts_;
  std::byte* scratch_;
  OperationTag tag_;
  WorkSink& sink_;
};

}  // namespace fasa
