// Which key dimensions the slices of a command's model take.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/llm/model.h"
#include "runtime/llm/model_slices.h"

namespace fasa {

struct SliceChoice {
  std::vector<int16_t> dims;  // [layers][kv_heads][2 x tip_chunks]
  std::string map;            // path of the FC map; "(made from the prompt)"; "" = none needed
  double seconds = 0;         // of wall time, spent on making a map
};

// As model_slices(); but fewer FCs than all without a map: from one made of the first 4096 tokens of the
// prompt, with a notice.
SliceChoice choose_slices(Model& model, const Config& config, const std::string& model_dir,
                          std::span<const int32_t> prompt);

}  // namespace fasa
