#include "runtime/llm/compute/model_memory.h"

#include <filesystem>
#include <memory>

#include "runtime/llm/compute/activations.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/compute/open_weights.h"
#include "runtime/llm/compute/weights.h"
#include "runtime/llm/gguf/gguf_files.h"
#include "runtime/llm/weights/random_weights.h"

namespace fasa {
namespace {

bool has_weights(const std::string& path) {
  if (path.empty()) return false;
  if (is_gguf(path)) return true;
  const std::filesystem::path folder(path);
  return std::filesystem::exists(folder / "model.safetensors") ||
         std::filesystem::exists(folder / "model.safetensors.index.json");
}

}  // namespace

ModelMemory model_memory(const std::string& path, const ModelConfig& config,
                         std::optional<DType> dtype, const WeightOptions& weights,
                         int64_t step_tokens, PanelOrder order) {
  constexpr uint64_t kSeed = 1;
  const DType chosen = dtype.value_or(config.auto_dtype());
  std::unique_ptr<WeightSource> source = std::make_unique<RandomWeights>(kSeed);
  if (has_weights(path)) source = open_weights(path);
  const WeightBytes bytes = Weights::count(std::move(source), config, chosen, order, weights);
  const auto activations = [&](int64_t tokens) {
    return Activations::device_bytes(config, chosen, order, tokens, 1);
  };
  constexpr int64_t kMany = 4096;
  return {.weights = bytes,
          .activations = bytes.kernel_scratch + activations(step_tokens),
          .activations_per_token = (activations(2 * kMany) - activations(kMany)) / kMany};
}

}  // namespace fasa
