// The results of an analysis on samples small enough to work out by hand, and on the whole bundled
// model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/base/error.h"
#include "runtime/lab/analyze/analysis.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using ::testing::ElementsAre;

// Two FCs, of the dimensions (0, 2) and (1, 3), and one query head unless a test sets more.
HeadSamples samples_of(int64_t tokens, int queries, int group = 1, uint32_t seed = 5) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  HeadSamples samples;
  samples.gqa_group = group;
  samples.key_dim = 4;
  samples.tokens = tokens;
  samples.chunks = {{0, 2}, {1, 3}};
  samples.keys.resize(static_cast<size_t>(4 * tokens));
  for (float& value : samples.keys) value = normal(random);
  for (int query = 0; query < queries; ++query) {
    samples.positions.push_back(static_cast<int32_t>(tokens - queries + query));
  }
  samples.queries.resize(static_cast<size_t>(queries * group * 4));
  for (float& value : samples.queries) value = normal(random);
  return samples;
}

TEST(Agreement, OfAHeadWithOneChunkThatCounts) {
  HeadSamples samples = samples_of(200, 20);
  for (int64_t t = 0; t < 200; ++t) samples.keys[static_cast<size_t>(200 + t)] = 0;  // dimension 1
  for (int64_t t = 0; t < 200; ++t) samples.keys[static_cast<size_t>(600 + t)] = 0;  // and 3
  AgreementTable table(1, 1, 2);
  table.add(samples, 20, 0, 0);
  EXPECT_DOUBLE_EQ(table.at(0, 0, 0), 1);
  EXPECT_LT(table.at(0, 0, 1), 0.5);
  EXPECT_THAT(rank_by_agreement(table, 0, 0, 1), ElementsAre(0, 1));
  EXPECT_DOUBLE_EQ(map_overlap(table, 3, table, 10, 1, 1), 1);
}

class ModelAnalysis : public ::testing::Test {
 protected:
  std::vector<int32_t> ruth() const {
    return tokenizer_->encode(llm_test::read_file(source_path("models/texts/ruth.txt")));
  }
  std::unique_ptr<Device> device_ = llm_test::open_test_device("cpu");
  Model model_ = Model::load(llm_test::bundled_dir(), *device_, DType::kF32);
  std::unique_ptr<text::Tokenizer> tokenizer_ =
      text::Tokenizer::load_if_present(llm_test::bundled_dir());
};

TEST_F(ModelAnalysis, IsTheSameWhateverIsCapturedAtATime) {
  const AnalysisOptions options{.tokens = 700, .window = 64, .queries = 20};
  AnalysisOptions narrow = options;
  narrow.capture_bytes = 1;
  const std::vector<AnalysisInput> inputs = {{"ruth", ruth()}};
  const Analysis whole = analyze(model_, inputs, options);
  const Analysis layers = analyze(model_, inputs, narrow);
  EXPECT_EQ(whole.size_overlap, layers.size_overlap);
  EXPECT_EQ(whole.mean_agreement(3, 2, 5), layers.mean_agreement(3, 2, 5));
  EXPECT_EQ(whole.texts[0].data.positions.size(), 20);
  EXPECT_EQ(whole.text_overlap[0][0], 1);
  EXPECT_EQ(whole.size_overlap.back(), 1);
}

TEST_F(ModelAnalysis, ShortTextsAndWideWindowsAreRefused) {
  const std::vector<AnalysisInput> inputs = {{"short", std::vector<int32_t>(300, 65)}};
  EXPECT_THROW(analyze(model_, inputs, {.tokens = 700}), InputError);
  EXPECT_THROW(analyze(model_, inputs, {.tokens = 400, .window = 256}), UsageError);
}

}  // namespace
}  // namespace fasa
