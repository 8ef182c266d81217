#include "runtime/llm/config/model_shape.h"

namespace fasa {

ModelShape model_shape(const ModelConfig& config, const std::string& name) {
  ModelShape shape;
  shape.name = name;
  shape.geometry = config.geometry();
  shape.hidden = config.hidden;
  shape.intermediate = config.intermediate;
  const int64_t matrices = 3 * int64_t{config.hidden};
  if (config.experts.count > 0) {
    shape.intermediate = config.read_mlp_parameters() / (matrices * config.layers);
    shape.idle_parameters = config.mlp_parameters() - config.read_mlp_parameters();
  }
  if (config.layer_input > 0) {
    const int64_t projections = int64_t{config.layers} * config.hidden * config.layer_input;
    shape.intermediate = (config.read_mlp_parameters() + projections) / (matrices * config.layers);
    shape.mlp_width = config.max_mlp_width();
    shape.layer_embeddings = int64_t{config.layers} * config.layer_input * config.layer_vocab_size;
  }
  if (config.linear.layers > 0) {
    // Queries, keys, values and outputs of the layers with rows are counted elsewhere.
    int64_t others = config.read_mlp_parameters();
    for (int layer = 0; layer < config.layers; ++layer) {
      others += config.attention_parameters(layer);
      if (config.is_linear(layer)) continue;
      others -=
          int64_t{2} * config.hidden * config.head_dim * (config.query_heads + config.kv_heads);
    }
    shape.mlp_width = config.read_mlp_parameters() / (matrices * config.layers);
    shape.intermediate = others / (matrices * config.attention_layers());
  }
  shape.vocab = config.vocab_size;
  shape.max_positions = config.max_positions;
  shape.tied_embeddings = config.tie_embeddings;
  return shape;
}

ModelConfig llama_config(const ModelShape& shape) {
  constexpr double kTheta = 500000;  // Llama 3's
  ModelConfig config;
  config.model_type = "llama";
  config.family = ModelFamily::find(config.model_type);
  config.vocab_size = static_cast<int>(shape.vocab);
  config.hidden = static_cast<int>(shape.hidden);
  config.intermediate = static_cast<int>(shape.intermediate);
  config.layers = shape.geometry.layers;
  config.query_heads = shape.geometry.query_heads;
  config.kv_heads = shape.geometry.kv_heads;
  config.head_dim = shape.geometry.key_dim;
  config.rotary_dims = shape.geometry.rotary_dims;
  config.rope.theta = kTheta;
  config.max_positions = shape.max_positions;
  config.tie_embeddings = shape.tied_embeddings;
  config.stored_dtype = DType::kBF16;
  return config;
}

}  // namespace fasa
