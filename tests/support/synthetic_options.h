// A synthetic decode small enough for tests.
#pragma once

#include "runtime/synthetic/synthetic_decode.h"

namespace fasa::testing {

inline SyntheticOptions small_settings() {
  SyntheticOptions settings;
  settings.geometry = {.layers = 5,
                       .kv_heads = 3,
                       .query_heads = 6,
                       .key_dim = 32,
                       .value_dim = 24,
                       .rotary_dims = 32,
                       .rotary_layout = RotaryLayout::kHalf,
                       .scale = 0.2f,
                       .windows = {}};
  settings.tokens = 1500;
  settings.max_steps = 40;
  settings.config.selection.fac_tokens = {{.tokens = 100, .share = 0}};
  settings.config.device.threads = 2;
  return settings;
}

}  // namespace fasa::testing
