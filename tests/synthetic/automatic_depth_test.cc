// prefetch.depth = auto against the constant depths that it chooses among, over random geometries,
// links, hot rows, weights and traces: at most one percent slower than the best of them, in virtual
// time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/support/synthetic_options.h"
#include "tests/support/traces.h"

namespace fasa::testing {
namespace {

constexpr unsigned kFirst = 8, kCases = 6;  // some of which benefit from predictions
constexpr unsigned kLongCases = 48;
constexpr int kWarm = 512;  // hot rows fill, and other depths are tried less and less often
constexpr int kMeasured = 512;

template <typename T>
T one_of(std::mt19937& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

struct DrawnDecode {
  SyntheticOptions settings;
  TraceSetup trace;
};

DrawnDecode drawn(unsigned seed) {
  std::mt19937 random(seed);
  DrawnDecode decode;
  SyntheticOptions& settings = decode.settings;
  settings = small_settings();
  Geometry& geometry = settings.geometry;
  geometry.layers = one_of(random, {2, 4, 6});
  geometry.kv_heads = one_of(random, {1, 2, 4, 8});
  geometry.query_heads = geometry.kv_heads * one_of(random, {1, 4});
  geometry.key_dim = geometry.rotary_dims = geometry.value_dim = one_of(random, {32, 64, 128});
  settings.tokens = one_of(random, {1500, 6000, 20000});
  settings.max_steps = kWarm + kMeasured;
  settings.weights.layer_bytes =
      one_of(random, {uint64_t{0}, uint64_t{4} << 20, uint64_t{40} << 20});
  settings.weights.estimate_bytes = one_of(random, {uint64_t{0}, uint64_t{4} << 20});
  const int set = one_of(random, {60, 100, 250});
  settings.config.selection.fac_tokens = {{.tokens = set, .share = 0}};
  const int sets = one_of(random, {0, 2, 4, 16});
  if (sets > 0) settings.config.placement.hot_rows = sets * set;
  if (random() % 2 == 0) settings.config.prefetch.head_groups = 1;  // predictions have more to hide
  settings.config.prefetch.predictor = PredictorKind::kNextQuery;
  settings.config.link.bandwidth = one_of(random, {5e8, 2e9, 6e9, 25e9});
  settings.config.link.latency = one_of(random, {2e-6, 10e-6, 30e-6});
  decode.trace = {.layers = geometry.layers,
                  .kv_heads = geometry.kv_heads,
                  .steps = 40,
                  .keeps = one_of(random, {4, 10, 16}),
                  .right = one_of(random, {2, 8, 16}),
                  .seed = seed};
  return decode;
}

double seconds_at(DrawnDecode decode, std::optional<int> depth) {
  decode.settings.config.prefetch.depth = depth;
  SyntheticDecode run(decode.settings, make_trace(decode.trace));
  return run.run(kWarm, kMeasured).tpot_seconds;
}

TEST(AutomaticDepth, IsNeverSlowerThanTheBest) {
  const bool all = std::getenv("FASA_LONG") != nullptr;
  const unsigned first = all ? 0 : kFirst, end = all ? kLongCases : kFirst + kCases;
  int predictions_pay = 0;
  for (unsigned seed = first; seed < end; ++seed) {
    const DrawnDecode decode = drawn(seed);
    const double off = seconds_at(decode, 0);
    double best = off;
    for (int depth = 1; depth <= std::min(2, decode.settings.geometry.layers - 1); ++depth) {
      best = std::min(best, seconds_at(decode, depth));
    }
    predictions_pay += best < 0.99 * off ? 1 : 0;
    const double automatic = seconds_at(decode, std::nullopt);
    EXPECT_LE(automatic, 1.01 * best) << fmt::format("seed {}: {:.2f} us, best {:.2f}, off {:.2f}",
                                                     seed, automatic * 1e6, best * 1e6, off * 1e6);
  }
  EXPECT_GT(predictions_pay, 0);  // otherwise never predicting would pass
}

}  // namespace
}  // namespace fasa::testing
