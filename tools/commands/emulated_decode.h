// The decode that `fasa profile` and `fasa tune` measure for a geometry: one question, asked in the
// same way.
#pragma once

#include <cstdint>

#include "runtime/api/prefill_chunk.h"
#include "runtime/catalog/model_shape.h"
#include "runtime/profile/profiled_decode.h"

namespace fasa {

inline constexpr const char* kUsualGpu = "RTX 4060 Ti 16GB";
inline constexpr int kUsualWeightBits = 4;
inline constexpr int kUsualWarmup = 48;  // steps: hot rows fill
inline constexpr int kMaxWarmup = 192;

struct EmulatedDecode {
  ModelShape shape;
  int64_t tokens = 0;
  int sequences = 1;
  int step_tokens = 1;
  int weight_bits = kUsualWeightBits;  // 0: attention alone
  int64_t max_steps = 0;
  uint64_t seed = 0;
  int prefill_chunk = kMinPrefillChunk;  // whose activations take memory
};

// `config` describes the machine. Its device memory, unless it is given or rows are on the device,
// becomes what weights and activations leave of the GPU's. Throws BudgetError if they do not fit.
SyntheticOptions emulated_options(const EmulatedDecode& decode, Config config);

// The steps of a warm-up: hot rows are warm when their hit rate no longer rises.
struct WarmUp {
  int steps = 0;
  double before = 0, after = 0;  // hit rate of the last eight steps, and of the eight before
  bool rises() const { return after - before > 0.01; }
};
// At least `least` steps, then as many as it takes, at most `most`. `on_step` after each.
WarmUp warm_up(ProfiledDecode& decode, int least, int most, const std::function<void()>& on_step);

}  // namespace fasa
