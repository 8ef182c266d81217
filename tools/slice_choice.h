// Which key dimensions a model's slices take, and the FC map that says so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/llm/model.h"

namespace fasa {

struct SliceChoice {
  std::vector<int16_t> dims;  // [layers][kv_heads][2 x tip_chunks]
  std::string map;            // path of the FC map; "(made from the prompt)"; "" = none needed
  double seconds = 0;         // of wall time, spent on making a map
};

// Where a model's FC map lies by itself: fc_map.json in its folder, NAME.fc_map.json beside NAME.gguf;
// "" for a model without files.
std::string usual_map(const std::string& model_dir);

// The config with what it leaves to the model's FC map (selection.slice = map, layer_budget = map):
// of selection.map, else of the usual one. Throws InputError.
Config with_map(Config config, const std::string& model_dir);

// The first FCs of the config's map, else of the usual one. A slice over all
// FCs needs no map: one that is there only says which of them guesses read. Fewer FCs without one:
// from a map made of the first 4096 tokens of the prompt, with a notice. Throws InputError for a
// map that cannot be read or belongs to another model; where all FCs are taken, the usual one is
// then left aside with a warning.
SliceChoice choose_slices(Model& model, const Config& config, const std::string& model_dir,
                          std::span<const int32_t> prompt);

}  // namespace fasa
