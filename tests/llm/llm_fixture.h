// Shared by the tests of runtime/llm: the golden folders, devices, and runtimes with full
// attention.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "offload/open_device.h"
#include "runtime/fasa.hpp"
#include "runtime/llm/compute/model.h"
#include "tests/support/source_path.h"

namespace fasa::llm_test {

inline std::string golden_dir(const std::string& name) {
  return source_path("tests/golden/" + name);
}
inline std::string bundled_dir() { return source_path("models/needle-3m"); }

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Golden folders of small random models.
inline constexpr const char* kDenseModels[] = {"llama-gqa-bf16",
                                               "llama-biases",
                                               "llama-mqa-f16",
                                               "llama-mha-tied",
                                               "llama-odd-head",
                                               "llama-llama3",
                                               "llama-linear-old-config",
                                               "llama-yarn",
                                               "mistral-window",
                                               "qwen2-sharded",
                                               "qwen2-window",
                                               "qwen3",
                                               "ernie",
                                               "ernie-mha-biases",
                                               "gpt-neox",
                                               "gpt-neox-sequential",
                                               "stablelm",
                                               "stablelm-parallel",
                                               "phi",
                                               "phi-norms",
                                               "bloom",
                                               "bloom-heads",
                                               "mpt",
                                               "deepseek-v2",
                                               "deepseek-v2-yarn",
                                               "granite",
                                               "olmo2",
                                               "olmo2-biases",
                                               "smollm3",
                                               "smollm3-window",
                                               "phi3",
                                               "phi3-short",
                                               "gemma2",
                                               "gemma2-uncapped",
                                               "ministral3",
                                               "mistral3-vision",
                                               "gemma3-vision",
                                               "olmo3",
                                               "olmo3-defaults",
                                               "seed-oss",
                                               "glm4",
                                               "exaone4",
                                               "exaone4-full",
                                               "starcoder2",
                                               "cohere2",
                                               "gemma3",
                                               "gemma3-old-config",
                                               "gemma4-one-shape",
                                               "gemma4",
                                               "gemma4-shared",
                                               "gemma4-vision"};
inline constexpr const char* kModelsWithExperts[] = {
    "gemma4-moe",  "qwen2-moe",          "qwen3-moe",       "qwen3-moe-mixed",        "mixtral",
    "gpt-oss",     "gpt-oss-old-config", "deepseek-v2-moe", "deepseek-v2-moe-groups", "glm4-moe",
    "glm4-moe-mtp"};
// Models with layers of linear attention.
inline constexpr const char* kLinearModels[] = {"qwen3-5", "qwen3-5-vision", "qwen3-5-mtp"};
inline constexpr const char* kLinearModelsWithExperts[] = {"qwen3-5-moe", "qwen3-next",
                                                           "qwen3-5-moe-mtp"};
// Names a test after its folder.
inline std::string by_folder(const ::testing::TestParamInfo<const char*>& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The output of transformers for a folder's model.
struct Golden {
  std::vector<int32_t> tokens;
  std::vector<size_t> positions;  // the positions that have logits
  std::vector<float> logits;      // [positions, vocab]

  static Golden load(const std::string& dir, const std::string& name = "logits") {
    const auto json = nlohmann::json::parse(read_file(dir + "/golden.json"));
    const std::string bytes = read_file(dir + "/" + name + ".f32");
    Golden golden;
    golden.tokens = json["tokens"].get<std::vector<int32_t>>();
    golden.positions = json["positions"].get<std::vector<size_t>>();
    golden.logits.resize(bytes.size() / sizeof(float));
    std::memcpy(golden.logits.data(), bytes.data(), bytes.size());
    return golden;
  }
};

// Bounds of relative_difference() to transformers' logits, by the dtype of weights and activations.
inline constexpr double kF32Bound = 1e-4;
inline constexpr double kBf16Bound = 2e-2;
// A state of linear attention sums the roundings of all tokens: transformers' own logits in bf16
// lie 6.6e-2 (qwen3-5) and 3.4e-2 (qwen3-5-vision) from those in f32.
inline constexpr double kBf16LinearBound = 6.6e-2;

// max |difference| / max |logit| over the golden's positions; `all`: logits of every position.
inline double relative_difference(const std::vector<float>& all, const Golden& golden,
                                  size_t vocab) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < golden.positions.size(); ++i) {
    for (size_t id = 0; id < vocab; ++id) {
      const double expected = golden.logits[i * vocab + id];
      const double given = all[golden.positions[i] * vocab + id];
      if (std::isnan(given)) return INFINITY;
      worst = std::max(worst, std::abs(given - expected));
      largest = std::max(largest, std::abs(expected));
    }
  }
  return worst / largest;
}

inline std::unique_ptr<Device> open_test_device(const std::string& name, int threads = 2) {
  DeviceOptions options;
  options.name = name;
  options.threads = threads;
  return open_device(options);
}

// The model's geometry with a window in all layers but the first `whole`; 0 = no window.
inline Geometry windowed(const Model& model, int window, int whole = 0) {
  Geometry geometry = model.config().geometry();
  if (window > 0) geometry.windows.assign(static_cast<size_t>(geometry.layers), window);
  std::fill_n(geometry.windows.begin(), whole, 0);
  return geometry;
}

inline std::unique_ptr<Runtime> full_runtime(const Model& model, int window = 0) {
  Config config;
  config.preset = "full";
  config.selection.kind = SelectionKind::kFull;
  config.placement.rows = RowPlacement::kDevice;
  const Geometry geometry = windowed(model, window);
  return std::make_unique<Runtime>(model.device(), config, geometry, model.dtype(),
                                   all_slice_dims(geometry));
}

// Full attention; rows on the host.
inline std::unique_ptr<Runtime> host_runtime(const Model& model) {
  Config config;
  config.selection.kind = SelectionKind::kFull;
  config.placement.rows = RowPlacement::kHost;
  config.placement.hot_rows = 0;
  const Geometry geometry = model.config().geometry();
  return std::make_unique<Runtime>(model.device(), config, geometry, model.dtype(),
                                   all_slice_dims(geometry));
}

// Logits after a prompt that one step reads.
inline std::vector<float> logits_by_steps(Model& model, Runtime& runtime, SequenceId sequence,
                                          std::span<const int32_t> prompt) {
  const StepSequence step[] = {{sequence, static_cast<int>(prompt.size()), StepMode::kPrefill}};
  const auto logits = model.step(runtime, prompt, step);
  return {logits.begin(), logits.end()};
}

// Logits of all tokens [tokens, vocab], prefilled in chunks.
inline std::vector<float> prefill_logits(Model& model, std::span<const int32_t> tokens,
                                         size_t chunk) {
  const auto runtime = full_runtime(model);
  const SequenceId sequence = runtime->create();
  std::vector<float> all;
  for (size_t done = 0; done < tokens.size(); done += chunk) {
    const size_t count = std::min(chunk, tokens.size() - done);
    const StepSequence step[] = {{sequence, static_cast<int>(count), StepMode::kPrefill}};
    const auto logits =
        model.step(*runtime, tokens.subspan(done, count), step, {.all_logits = true});
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

}  // namespace fasa::llm_test
