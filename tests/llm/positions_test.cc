// Models whose keys are not rotated, or only in part, through the whole pipeline: decoded token by
// token with selection, and calibrated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/capture/calibration.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using namespace llm_test;

struct Way {
  const char* device = "cpu";
  RowPlacement rows = RowPlacement::kHost;
  int64_t fac_tokens = 1000;
  int tip_chunks = 0;  // 0 = all
};

// Prefills the tokens before `first`, decodes the others one by one and returns their logits.
std::vector<float> decode(const std::string& dir, std::span<const int32_t> tokens, size_t first,
                          const Way& way) {
  const auto device = open_test_device(way.device);
  Model model = Model::load(dir, *device, DType::kF32);
  const Geometry geometry = model.config().geometry();
  Config config;
  config.placement.rows = way.rows;
  config.placement.hot_rows = 24;
  config.selection.fac_tokens = {TokenCount{.tokens = way.fac_tokens}};
  config.selection.sinks = 2;
  config.selection.recent = 8;
  std::vector<int16_t> dims = all_slice_dims(geometry);
  if (way.tip_chunks > 0) {
    config.selection.tip_chunks = way.tip_chunks;
    dims = calibrate_from_prompt(model, tokens, 2, 8).slice_dims(way.tip_chunks);
  }
  Runtime runtime(model.device(), config, geometry, model.dtype(), dims);
  const SequenceId sequence = runtime.create();
  const StepSequence fill[] = {{sequence, static_cast<int>(first), StepMode::kPrefill}};
  model.step(runtime, tokens.first(first), fill, {.no_logits = true});
  std::vector<float> all;
  for (size_t i = first; i < tokens.size(); ++i) {
    const StepSequence step[] = {{sequence, 1, StepMode::kDecode}};
    const auto logits = model.step(runtime, tokens.subspan(i, 1), step);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

double difference(const std::vector<float>& decoded, size_t first, const Golden& golden) {
  const size_t vocab = golden.logits.size() / golden.positions.size();
  double worst = 0, largest = 0;
  for (size_t i = 0; i < golden.positions.size(); ++i) {
    if (golden.positions[i] < first) continue;
    for (size_t id = 0; id < vocab; ++id) {
      const double expected = golden.logits[i * vocab + id];
      const double given = decoded[(golden.positions[i] - first) * vocab + id];
      worst = std::max(worst, std::isnan(given) ? INFINITY : std::abs(given - expected));
      largest = std::max(largest, std::abs(expected));
    }
  }
  return worst / largest;
}

class PositionsTest : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr size_t kFirst = 40;  // of 90
  void SetUp() override {
    dir_ = golden_dir(GetParam());
    golden_ = Golden::load(dir_);
  }
  std::vector<float> decoded(const Way& way) const {
    return decode(dir_, golden_.tokens, kFirst, way);
  }
  std::string dir_;
  Golden golden_;
};

// Sets of all tokens equal full attention, which transformers computes.
TEST_P(PositionsTest, WholeSetsGiveTransformersLogits) {
  const std::vector<float> cpu = decoded({});
  EXPECT_LE(difference(cpu, kFirst, golden_), 1e-4);
  EXPECT_EQ(decoded({.device = "emulated"}), cpu);
  EXPECT_EQ(decoded({.device = "emulated", .rows = RowPlacement::kDevice}), cpu);
}

TEST_P(PositionsTest, SmallSetsAreTheSameEverywhere) {
  const Way way{.fac_tokens = 30};
  const std::vector<float> cpu = decoded(way);
  EXPECT_EQ(decoded({.device = "emulated", .fac_tokens = 30}), cpu);
  EXPECT_EQ(decoded({.device = "emulated", .rows = RowPlacement::kDevice, .fac_tokens = 30}), cpu);
  EXPECT_GT(difference(cpu, kFirst, golden_), 1e-4);
}

TEST_P(PositionsTest, CalibratedSlicesOfHalfTheDimensions) {
  const int pairs = ModelConfig::load(dir_).geometry().key_dim / 2;
  const std::vector<float> cpu = decoded({.fac_tokens = 30, .tip_chunks = pairs / 2});
  EXPECT_EQ(decoded({.device = "emulated", .fac_tokens = 30, .tip_chunks = pairs / 2}), cpu);
  // A part of the chunks selects other tokens than whole slices, unless the part has all chunks.
  EXPECT_NE(decoded({.fac_tokens = 30}), cpu);
  EXPECT_EQ(decoded({.tip_chunks = pairs / 2}), decoded({}));
}

TEST_P(PositionsTest, MapsHoldPairsAndSingleDimensions) {
  const auto device = open_test_device("cpu");
  Model model = Model::load(dir_, *device, DType::kF32);
  const Geometry geometry = model.config().geometry();
  const FcMap map = calibrate_from_prompt(model, golden_.tokens, 2, 8);
  EXPECT_EQ(FcMap::parse(map.to_json(), "made here").to_json(), map.to_json());
  map.require_fits(model.fingerprint(), "made here");
  for (const auto& layer : map.heads) {
    for (const HeadRanking& head : layer) {
      EXPECT_EQ(head.chunks.size(), geometry.ranked_chunks().size());
      EXPECT_EQ(head.agreement.size(), head.chunks.size());
      EXPECT_NEAR(head.distant_attention_kept.back(), 1, 1e-4);
      for (const auto& chunk : head.chunks) {
        EXPECT_EQ(chunk.size(), chunk[0] < geometry.rotary_dims ? 2u : 1u);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PositionsTest,
                         ::testing::Values("phi", "gpt-neox", "stablelm-parallel", "bloom-heads",
                                           "mpt", "deepseek-v2", "deepseek-v2-yarn", "smollm3",
                                           "phi3", "gemma2", "gemma3"),
                         by_folder);

}  // namespace
}  // namespace fasa
