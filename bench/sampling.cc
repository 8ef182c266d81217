// Time to draw a token: sampling [--benchmark_filter=...]. Logits: normal, standard deviation 2.5.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "runtime/llm/sampler.h"

namespace fasa::bench {
namespace {

void draw(benchmark::State& state, const Sampling& sampling) {
  std::vector<float> logits(static_cast<size_t>(state.range(0)));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2.5f);
  for (float& logit : logits) logit = normal(random);
  Sampler sampler(sampling);
  for (auto _ : state) benchmark::DoNotOptimize(sampler.next(logits));
}

#define FASA_DRAW(name, ...)                           \
  BENCHMARK_CAPTURE(draw, name, Sampling{__VA_ARGS__}) \
      ->ArgName("vocabulary")                          \
      ->Arg(32000)                                     \
      ->Arg(151936)                                    \
      ->Arg(262144)                                    \
      ->Unit(benchmark::kMillisecond)

FASA_DRAW(greedy, .temperature = 0);
FASA_DRAW(temperature_1, .temperature = 1);
FASA_DRAW(top_p_95, .temperature = 1, .top_p = 0.95f);
FASA_DRAW(top_p_95_min_p_05, .temperature = 1, .top_p = 0.95f, .min_p = 0.05f);
FASA_DRAW(top_k_40, .temperature = 1, .top_k = 40);

}  // namespace
}  // namespace fasa::bench

BENCHMARK_MAIN();
