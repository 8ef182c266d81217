// The part of a model that one process of a distributed engine runs: the layers of its pipeline
// stage, the KV heads of its tensor-parallel rank.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/geometry.h"
#include "runtime/config/config.h"

namespace fasa {

// Layers [first, first + count) of a model; count 0: all layers from `first` on.
struct LayerRange {
  int first = 0;
  int count = 0;
};

// A model of its own, with layers and heads counted from 0. Its results equal the whole model's bit
// by bit.
struct ModelPart {
  Config config;  // budgets and dense layers of these layers
  Geometry geometry;
  std::vector<int16_t> slice_dims;
};

// `config`, `geometry` and `slice_dims` are the whole model's. A count of 0: all from the first.
// Throws UsageError for a range beyond the model.
ModelPart part_of_model(const Config& config, const Geometry& geometry,
                        const std::vector<int16_t>& slice_dims, LayerRange layers, HeadRange heads);

}  // namespace fasa
