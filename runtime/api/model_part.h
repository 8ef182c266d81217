// What a process of a distributed engine has of a model: the layers of its pipeline stage, the KV
// heads of its tensor-parallel rank.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/geometry.h"
#include "runtime/config/config.h"

namespace fasa {

// Layers [first, first + count) of a model; count 0: all from the first.
struct LayerRange {
  int first = 0;
  int count = 0;
};

// A model of its own, layers and heads counted from 0. Its bits are those of the whole.
struct ModelPart {
  Config config;  // budgets and dense layers of these layers
  Geometry geometry;
  std::vector<int16_t> slice_dims;
};

// Of the whole model's settings. Count 0: all from the first. Throws UsageError for a range that is
// beyond the model.
ModelPart part_of_model(const Config& config, const Geometry& geometry,
                        const std::vector<int16_t>& slice_dims, LayerRange layers, HeadRange heads);

}  // namespace fasa
