// Decoding token by token against Hugging Face transformers' logits (tests/golden/make_golden.py),
// for every model family: rows fetched from the host, found in hot rows, predicted, or on the
// device.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using namespace llm_test;

struct Way {
  const char* name;
  const char* device = "emulated";
  RowPlacement rows = RowPlacement::kHost;
  int hot_rows = 24;
  PredictorKind predictor = PredictorKind::kNone;
  SelectionKind kind = SelectionKind::kFasa;
};

const Way kWays[] = {{.name = "fewer hot rows than tokens"},
                     {.name = "no hot rows", .hot_rows = 0},
                     {.name = "copies in place of hot rows", .hot_rows = 128},
                     {.name = "the last step's rows ahead", .predictor = PredictorKind::kRunnersUp},
                     {.name = "rows where there is room", .rows = RowPlacement::kAuto},
                     {.name = "rows on the device", .rows = RowPlacement::kDevice},
                     {.name = "whole pages from the host", .kind = SelectionKind::kFull},
                     {.name = "one tier", .device = "cpu"}};

struct Decoded {
  std::vector<float> logits;  // of every token, [tokens, vocab]
  StepCounters rows;
};

// Prefills the first `prompt` tokens and decodes the others one by one, with all tokens selected.
Decoded decode(const std::string& dir, const Golden& golden, size_t prompt, const Way& way) {
  const auto device = open_test_device(way.device);
  Model model = Model::load(dir, *device, DType::kF32);
  const Geometry geometry = model.config().geometry();
  Config config;
  config.selection.kind = way.kind;
  config.selection.fac_tokens = {TokenCount{.tokens = 1000}};
  config.selection.sinks = 2;
  config.selection.recent = 8;
  config.placement.rows = way.rows;
  config.placement.hot_rows = way.hot_rows;
  config.prefetch.predictor = way.predictor;
  config.prefetch.depth = way.predictor == PredictorKind::kNone ? 0 : 1;
  Runtime runtime(model.device(), config, geometry, model.dtype(), all_slice_dims(geometry));
  const SequenceId sequence = runtime.create();
  const std::span<const int32_t> tokens = golden.tokens;
  const StepSequence fill[] = {{sequence, static_cast<int>(prompt), StepMode::kPrefill}};
  Decoded decoded;
  const auto filled = model.step(runtime, tokens.first(prompt), fill, {.all_logits = true});
  decoded.logits.assign(filled.begin(), filled.end());
  for (size_t i = prompt; i < tokens.size(); ++i) {
    const StepSequence step[] = {{sequence, 1, StepMode::kDecode}};
    const auto logits = model.step(runtime, tokens.subspan(i, 1), step);
    decoded.logits.insert(decoded.logits.end(), logits.begin(), logits.end());
  }
  decoded.rows = runtime.metrics().rows;
  return decoded;
}

class DecodeGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(DecodeGolden, LogitsEqualTransformersWhereverRowsAre) {
  const std::string dir = golden_dir(GetParam());
  const Golden golden = Golden::load(dir);
  std::vector<float> first;
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const Decoded decoded = decode(dir, golden, 11, way);
    const size_t vocab = decoded.logits.size() / golden.tokens.size();
    EXPECT_LE(relative_difference(decoded.logits, golden, vocab), kF32Bound);
    if (first.empty()) first = decoded.logits;
    EXPECT_EQ(decoded.logits, first);
    const bool tiered = way.device == std::string("emulated") && way.rows == RowPlacement::kHost &&
                        way.kind == SelectionKind::kFasa && way.hot_rows < 128;
    if (tiered) {
      EXPECT_GT(decoded.rows.misses, 0u);
    }
    if (tiered && way.hot_rows > 0) {
      EXPECT_GT(decoded.rows.hits, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, DecodeGolden,
    ::testing::Values("llama-gqa-bf16", "llama-biases", "llama-mqa-f16", "llama-mha-tied",
                      "llama-odd-head", "llama-llama3", "llama-linear-old-config", "llama-yarn",
                      "mistral-window", "qwen2-sharded", "qwen2-window", "qwen3", "ernie",
                      "ernie-mha-biases", "gpt-neox-sequential", "stablelm", "phi-norms", "bloom",
                      "granite", "olmo2", "olmo2-biases", "smollm3", "smollm3-window", "phi3",
                      "phi3-short", "ministral3", "mistral3-vision", "gemma3-vision", "olmo3",
                      "olmo3-defaults", "seed-oss", "glm4", "exaone4", "exaone4-full", "starcoder2",
                      "cohere2", "gemma2", "gemma2-uncapped", "gemma3", "gemma3-old-config",
                      "qwen2-moe", "qwen3-moe", "qwen3-moe-mixed", "mixtral", "gpt-oss",
                      "gpt-oss-old-config", "gemma4-one-shape", "gemma4", "gemma4-shared",
                      "gemma4-vision", "gemma4-moe", "qwen3-5", "qwen3-5-vision", "qwen3-5-moe",
                      "qwen3-next"),
    by_folder);

}  // namespace
}  // namespace fasa
