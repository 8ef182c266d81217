// A decode loop over two layers, as an engine would run it, and what the device had to fetch.
//
//   c++ -std=c++20 decode.cc $(pkg-config --cflags --libs fasa)
#include <cstdio>
#include <fasa/fasa.hpp>
#include <random>
#include <vector>

namespace {

constexpr int kLayers = 2, kKvHeads = 2, kQueryHeads = 8, kDim = 64;
constexpr int kPrompt = 4096, kSteps = 16;

// Values that a model's projections would give: [tokens, heads, kDim].
std::vector<float> random_tensor(int tokens, int heads) {
  static std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(tokens) * heads * kDim);
  for (float& value : values) value = normal(generator);
  return values;
}

void run_step(fasa::Runtime& runtime, const fasa::Sequence& sequence, int tokens,
              fasa::StepMode mode) {
  std::vector<float> out(static_cast<size_t>(tokens) * kQueryHeads * kDim);
  fasa::Step step(runtime, {sequence, tokens, mode});  // aborts where something throws
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto k = random_tensor(tokens, kKvHeads), v = random_tensor(tokens, kKvHeads);
    const auto q = random_tensor(tokens, kQueryHeads);
    runtime.append(layer, {k.data(), tokens, kKvHeads, kDim}, {v.data(), tokens, kKvHeads, kDim});
    runtime.attend(layer, {q.data(), tokens, kQueryHeads, kDim},
                   {out.data(), tokens, kQueryHeads, kDim});
    runtime.synchronize();  // k, v and q end here
  }
  step.end();
}

}  // namespace

int main() {
  const fasa::Config config{{"fac_tokens", "128"}, {"device.name", "emulated"}};
  const fasa::Geometry geometry{
      .layers = kLayers, .kv_heads = kKvHeads, .query_heads = kQueryHeads, .key_dim = kDim};
  fasa::Runtime runtime({.geometry = geometry, .config = &config});
  const fasa::Sequence sequence = runtime.create();
  run_step(runtime, sequence, kPrompt, fasa::StepMode::kPrefill);
  for (int i = 0; i < kSteps; ++i) run_step(runtime, sequence, 1, fasa::StepMode::kDecode);

  const auto metrics = runtime.metrics();
  std::printf("%lld tokens, %llu decode steps\n", static_cast<long long>(runtime.length(sequence)),
              static_cast<unsigned long long>(metrics.decode_steps));
  std::printf("rows found on the device %llu, fetched from the host %llu\n",
              static_cast<unsigned long long>(metrics.hits),
              static_cast<unsigned long long>(metrics.misses));
}
