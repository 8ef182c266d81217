// Fills in the part of a fingerprint that a geometry determines.
#pragma once

#include <utility>

#include "runtime/calibrate/fc_map.h"

namespace fasa {

// `print` with the heads of `geometry`; other properties are unchanged.
inline ModelFingerprint with_heads_of(const Geometry& geometry, ModelFingerprint print) {
  print.layers = geometry.layers;
  print.kv_heads = geometry.kv_heads;
  print.query_heads = geometry.query_heads;
  print.key_dim = geometry.key_dim;
  print.value_dim = geometry.value_dim;
  print.rotary_dims = geometry.rotary_dims;
  print.rotary_layout = geometry.rotary_layout == RotaryLayout::kHalf ? "half" : "interleaved";
  return print;
}

}  // namespace fasa
