// Which key dimensions a model's slices take, and the FC map beside a model that says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/llm/model.h"

namespace fasa {

struct ModelSlices {
  std::vector<int16_t> dims;  // [layers][kv_heads][2 x tip_chunks]
  std::string map;            // path of the FC map; "" = none needed
};

// Where a model's FC map lies by itself: fc_map.json in its folder, NAME.fc_map.json beside
// NAME.gguf; "" for a model without files.
std::string usual_map(const std::string& model_path);

// The config with what it leaves to the model's FC map (selection.slice = map, layer_budget = map):
// of selection.map, else of the usual one. Throws InputError.
Config with_map(Config config, const std::string& model_path);

// The first FCs of the config's map, else of the usual one. A slice over all FCs needs no map: one
// that is there only says which of them predictions read. None where fewer FCs are asked for and
// there is no map. Throws InputError for a map that cannot be read or belongs to another model;
// where all FCs are taken, the usual one is then left aside with a warning.
std::optional<ModelSlices> model_slices(const Model& model, const Config& config,
                                        const std::string& model_path);

}  // namespace fasa
