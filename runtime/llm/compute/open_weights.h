// Opens a model's tensors: of a folder or a GGUF file.
#pragma once

#include <memory>
#include <string>

#include "runtime/llm/weights/weight_source.h"

namespace fasa {

// `path`: a Hugging Face folder, packed or not, or a GGUF file. Throws InputError.
std::unique_ptr<WeightSource> open_weights(const std::string& path);

}  // namespace fasa
