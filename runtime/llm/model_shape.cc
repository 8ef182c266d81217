#include "runtime/llm/model_shape.h"

namespace fasa {

ModelShape model_shape(const ModelConfig& config, const std::string& name) {
  ModelShape shape;
  shape.name = name;
  shape.geometry = config.geometry();
  shape.hidden = config.hidden;
  shape.intermediate = config.intermediate;
  shape.vocab = config.vocab_size;
  shape.max_positions = config.max_positions;
  shape.tied_embeddings = config.tie_embeddings;
  return shape;
}

}  // namespace fasa
