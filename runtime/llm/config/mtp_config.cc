#include "runtime/llm/config/mtp_config.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/llm/config/text_root.h"

namespace fasa {
namespace {

[[noreturn]] void fail(const WeightSource& files, const std::string& why) {
  throw InputError(fmt::format(
      "{}: {}; drafts of kind mtp need one; allowed: --drafts none, lookup", files.source(), why));
}

// Tensors under a root of their own, as in Qwen's folders.
MtpNames own_root(std::string embeddings) {
  const std::string root = kMtpRoot;
  return {.layer = root + "layers.0.",
          .embeddings = std::move(embeddings),
          .token_norm = root + "pre_fc_norm_embedding",
          .state_norm = root + "pre_fc_norm_hidden",
          .projection = root + "fc",
          .final_norm = root + "norm",
          .output = "",
          .prefix = root};
}

// A layer behind the others, as in GLM's folders and in all GGUF files.
MtpNames last_layer(const std::string& layer, std::string embeddings) {
  return {.layer = layer,
          .embeddings = std::move(embeddings),
          .token_norm = layer + "enorm",
          .state_norm = layer + "hnorm",
          .projection = layer + "eh_proj",
          .final_norm = layer + "shared_head.norm",
          .output = layer + "shared_head.head",
          .prefix = layer};
}

}  // namespace

ModelConfig mtp_config(const ModelConfig& trunk) {
  ModelConfig config = trunk;
  config.mtp_layer = trunk.layers;
  config.layers = 1;
  config.predicting_layers = 0;
  config.linear = {};
  config.linear_layers.clear();
  config.windows.clear();
  config.layer_rotations.clear();
  config.expert_layers.clear();
  if (config.experts.count > 0) config.expert_layers = {true};
  return config;
}

MtpNames MtpNames::find(const WeightSource& files, const ModelConfig& head) {
  const ModelFamily& family = *head.family;
  if (!family.mtp_head) {
    fail(files, fmt::format("heads of multi-token prediction are not read for model_type {}",
                            head.model_type));
  }
  const std::string root = text_root(files, family);
  const std::string embeddings = root + std::string(family.names.embeddings);
  const auto has = [&](const std::string& name) { return files.has(name + ".weight"); };
  MtpNames names = own_root(embeddings);
  if (has(names.projection)) return names;
  const std::string layer = fmt::format("{}{}.{}.", root, family.names.layers, head.mtp_layer);
  names = last_layer(layer, embeddings);
  if (!has(names.projection) && !files.names().empty()) {  // random weights have no names
    fail(files, fmt::format("the model has no head of multi-token prediction ({}.weight or "
                            "{}.weight)",
                            own_root("").projection, names.projection));
  }
  if (has(layer + "embed_tokens")) names.embeddings = layer + "embed_tokens";
  if (!has(names.output)) names.output.clear();
  if (!has(names.final_norm)) names.final_norm = root + std::string(family.names.final_norm);
  return names;
}

}  // namespace fasa
