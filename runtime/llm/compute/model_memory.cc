#include "runtime/llm/compute/model_memory.h"

#include <filesystem>
#include <memory>

#include "runtime/llm/compute/activations.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/compute/open_weights.h"
#include "runtime/llm/compute/weights.h"
#include "runtime/llm/config/mtp_config.h"
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

std::unique_ptr<WeightSource> source_of(const std::string& path) {
  constexpr uint64_t kSeed = 1;
  if (has_weights(path)) return open_weights(path);
  return std::make_unique<RandomWeights>(kSeed);
}

}  // namespace

ModelMemory model_memory(const std::string& path, const ModelConfig& config,
                         std::optional<DType> dtype, const WeightOptions& weights,
                         int64_t step_tokens, PanelOrder order) {
  const DType chosen = dtype.value_or(config.auto_dtype());
  WeightBytes bytes = Weights::count(source_of(path), config, chosen, order, weights);
  const std::optional<ModelConfig> head =
      weights.mtp_head ? std::optional(mtp_config(config)) : std::nullopt;
  if (head) bytes.add_head(Weights::count(source_of(path), *head, chosen, order, weights));
  const auto activations = [&](int64_t tokens) {
    const uint64_t own = Activations::device_bytes(config, chosen, order, tokens, 1);
    return own + (head ? Activations::device_bytes(*head, chosen, order, tokens, 1) : 0);
  };
  constexpr int64_t kMany = 4096;
  return {.weights = bytes,
          .activations = bytes.kernel_scratch + activations(step_tokens),
          .activations_per_token = (activations(2 * kMany) - activations(kMany)) / kMany};
}

uint64_t mtp_row_bytes(const ModelConfig& config, const WeightOptions& weights, RowDType rows,
                       int64_t tokens) {
  if (!weights.mtp_head) return 0;
  const HeadShape heads = mtp_config(config).heads(0);
  const RowFormat row{.dtype = rows, .key_dim = heads.key_dim, .value_dim = heads.value_dim};
  const int64_t pages = (tokens + kPageTokens - 1) / kPageTokens;
  return static_cast<uint64_t>(pages * kPageTokens * heads.kv_heads * row.bytes());
}

}  // namespace fasa
