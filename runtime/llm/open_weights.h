// The tensors of a model, wherever a path says that it lies.
#pragma once

#include <memory>
#include <string>

#include "runtime/llm/weights/weight_source.h"

namespace fasa {

// `path`: a Hugging Face folder, its matrices packed or not, or a GGUF file. Throws InputError.
std::unique_ptr<WeightSource> open_weights(const std::string& path);

}  // namespace fasa
