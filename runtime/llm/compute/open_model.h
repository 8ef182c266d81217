// Opens a model with its device, config and tokenizer in one call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/api/sequences/runtime.h"
#include "runtime/config/config.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/compute/model_slices.h"

namespace fasa {

// Members are in order of dependency; runtimes must be destroyed first.
struct OpenModel {
  Config config;  // with the settings of the FC map
  std::unique_ptr<Device> device;
  Model model;
  ModelSlices slices;

  // Makes a KV cache for the model. `max_context`: tokens of the longest expected sequence, 0 =
  // unknown.
  std::unique_ptr<Runtime> make_runtime(int64_t max_context = 0) const;
};

// `path`: a Hugging Face folder or a GGUF file. Opens the config's device with its memory limits.
// `dtype`: of activations, as in Model::load(). Throws InputError for an invalid file, or if slices
// take fewer than all FCs and there is no FC map (`fasa calibrate` makes one); BudgetError;
// UsageError.
OpenModel open_model(const std::string& path, const Config& config,
                     std::optional<DType> dtype = std::nullopt);

}  // namespace fasa
