// Who does a model's own work, all that lies between two attentions: host code where the device
// runs that, else kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "offload/device.h"
#include "runtime/base/dtype.h"
#include "runtime/llm/activations.h"
#include "runtime/llm/layer_work.h"
#include "runtime/llm/model_config.h"
#include "runtime/llm/rope_frequencies.h"
#include "runtime/llm/weights.h"

namespace fasa {

// What the work of all steps refers to; outlives the engine.
struct EngineParts {
  Device& device;
  const ModelConfig& config;
  const Weights& weights;
  const Activations& activations;
  DType dtype;
  const std::vector<Rotation>& rotations;
  StreamView stream;
};

// But for stage(), everything is enqueued on the parts' stream, and nothing is waited for; equal
// sizes in the shapes make equal work. Between begin() and the end of a step's work the step's shape
// stays where it is.
class LayerEngine {
 public:
  virtual ~LayerEngine() = default;

  // Room for steps as large as these activations, which will take the place of the parts' ones.
  // Throws BudgetError; the old room stays.
  virtual void reserve(const Activations& larger) = 0;
  // Host data of a step to where its work will read it. The last step's work is done.
  virtual void stage(const StepShape& step) = 0;
  // Host embeddings -> residual, and what all layers share. After stage().
  virtual void begin(const StepShape& step) = 0;
  // All that follows the attention of the layer before, then all that precedes this one's.
  virtual void to_attention(int layer) = 0;
  // LayerWork::query_of, after to_attention() of an earlier layer, which `tag` names.
  virtual void query_of(int layer, std::byte* query, OperationTag tag) = 0;
  // All that follows the last attention -> the activations' host logits.
  virtual void logits() = 0;
};

// Kernels where the device has them.
std::unique_ptr<LayerEngine> make_layer_engine(const EngineParts& parts);

}  // namespace fasa
