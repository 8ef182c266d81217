// Steps that the host enqueues without waiting in between, so that a device can interleave all of
// them. Inputs and outputs are those of Tape::step.
#pragma once

#include <span>
#include <vector>

#include "tests/support/tape.h"

namespace fasa::testing {

class QueuedSteps {
 public:
  QueuedSteps(Device& device, Runtime& runtime, Tape& tape)
      : device_(device), runtime_(runtime), tape_(tape) {}

  // Uploads the inputs; all steps are prepared before the first is enqueued.
  void prepare(std::span<const Part> parts) {
    Step& step = steps_.emplace_back();
    step.parts.assign(parts.begin(), parts.end());
    const Geometry& g = runtime_.geometry();
    const auto values = static_cast<size_t>(tokens_of(parts) * g.query_heads * g.value_dim);
    step.results.resize(values * static_cast<size_t>(g.layers));
    for (int layer = 0; layer < g.layers; ++layer) {
      step.layers.push_back(
          {.k = tape_.keys(parts, layer),
           .v = tape_.values(parts, layer),
           .q = tape_.queries(parts, layer),
           .out = device_.allocate(MemorySpace::kDevice, values * sizeof(float), "test output")});
    }
  }

  void enqueue() {
    for (Step& step : steps_) enqueue(step);
  }

  // One vector per step.
  std::vector<std::vector<float>> finish() {
    device_.synchronize(tape_.stream());
    std::vector<std::vector<float>> all;
    for (Step& step : steps_) all.push_back(std::move(step.results));
    return all;
  }

 private:
  struct Layer {
    Buffer k, v, q, out;
  };
  struct Step {
    std::vector<Part> parts;
    std::vector<Layer> layers;
    std::vector<float> results;
  };

  void enqueue(Step& step) {
    const Geometry& g = runtime_.geometry();
    const int64_t tokens = tokens_of(step.parts);
    const DType dtype = tape_.dtype();
    const StreamView stream = tape_.stream();
    tape_.begin(step.parts);
    for (int layer = 0; layer < g.layers; ++layer) {
      const Layer& l = step.layers[static_cast<size_t>(layer)];
      if (!g.is_shared(layer)) {
        runtime_.append(
            layer, ConstTensorView::dense(l.k.data(), dtype, tokens, g.kv_heads, g.key_dim),
            ConstTensorView::dense(l.v.data(), dtype, tokens, g.kv_heads, g.value_dim), stream);
      }
      runtime_.attend(
          layer, ConstTensorView::dense(l.q.data(), dtype, tokens, g.query_heads, g.key_dim),
          TensorView::dense(l.out.data(), DType::kF32, tokens, g.query_heads, g.value_dim), nullptr,
          stream);
      device_.copy(step.results.data() + static_cast<size_t>(layer) * l.out.bytes() / sizeof(float),
                   l.out.data(), l.out.bytes(), CopyKind::kDeviceToHost, stream);
    }
    runtime_.end_step();
  }

  Device& device_;
  Runtime& runtime_;
  Tape& tape_;
  std::vector<Step> steps_;
};

}  // namespace fasa::testing
