// The key dimensions of a model's slices, for commands.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/compute/model_slices.h"

namespace fasa {

struct SliceChoice {
  std::vector<int16_t> dims;  // [layers][kv_heads][2 x tip_chunks]
  std::string map;            // path of the FC map; "(made from the prompt)"; "" = none needed
  double seconds = 0;         // wall time of making a map
};

// Like model_slices(). If fewer than all FCs are needed and there is no map, makes one from the
// first 4096 tokens of the prompt and prints a notice.
SliceChoice choose_slices(Model& model, const Config& config, const std::string& model_dir,
                          std::span<const int32_t> prompt);

}  // namespace fasa
