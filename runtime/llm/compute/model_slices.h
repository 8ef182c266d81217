// The key dimensions in a model's slices, chosen by the FC map beside the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/llm/compute/model.h"

namespace fasa {

struct ModelSlices {
  std::vector<int16_t> dims;  // [layers][kv_heads][2 x tip_chunks]
  std::string map;            // path of the FC map used; "" = none
};

// Default path of a model's FC map: fc_map.json in its folder, NAME.fc_map.json beside NAME.gguf;
// "" for a model without files.
std::string usual_map(const std::string& model_path);

// Returns the config with its settings from the FC map filled in (selection.slice = map):
// from selection.map, else the default path. Throws InputError.
Config with_map(Config config, const std::string& model_path);

// The first FCs of the config's map, else of the map at the default path. A slice over all FCs
// with the same bits needs no map; if there is one, it orders the dimensions. Empty if the FCs
// have to be ranked and there is no map. Throws InputError for a map that cannot be read or
// belongs to another model; where none is needed, a bad map at the default path is skipped with a
// warning.
std::optional<ModelSlices> model_slices(const Model& model, const Config& config,
                                        const std::string& model_path);

}  // namespace fasa
