// Calibration of the small trained models: chunks of both kinds where only a part of a head is
// rotated, and position biases that decide which tokens score best.
#include <gtest/gtest.h>

#include "runtime/calibrate/calibrate_slices.h"
#include "runtime/capture/calibration.h"
#include "tests/analyze/head_query.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

constexpr int64_t kTokens = 768;
constexpr int kQueries = 12;

class TrainedModel {
 public:
  explicit TrainedModel(const std::string& name)
      : device_(llm_test::open_test_device("cpu")),
        model_(Model::load(source_path("models/" + name), *device_, DType::kF32)) {
    const std::string text =
        llm_test::read_file(source_path("models/texts/ruth.txt")).substr(0, kTokens);
    for (const char byte : text) ids_.push_back(static_cast<uint8_t>(byte));
  }

  CalibrationData data() const {
    return make_calibration_data(ids_, {.tokens = kTokens, .queries = kQueries, .probes = false});
  }
  AttentionCapture capture() { return capture_attention(model_, data(), 256); }
  FcMap calibrate() {
    CalibrationOptions options;
    options.window = 64;
    options.queries = kQueries;
    options.tokens = kTokens;
    return fasa::calibrate(model_, ids_, options);
  }
  const ModelConfig& config() const { return model_.config(); }

 private:
  std::unique_ptr<Device> device_;
  Model model_;
  std::vector<int32_t> ids_;
};

double sum_over(const TokenSet& set, const std::vector<double>& weights) {
  double sum = 0;
  for (size_t i = 0; i < set.size(); ++i) sum += set[i] != 0 ? weights[i] : 0;
  return sum;
}

// The best tokens by the whole score, and by q·k alone.
TEST(AlibiModel, BiasesDecideWhichTokensAreTheBest) {
  constexpr int64_t kBest = 64;
  TrainedModel trained("alibi-400k");
  AttentionCapture capture = trained.capture();
  int64_t same = 0, all = 0;
  double with = 0, without = 0;
  for (int layer = 0; layer < trained.config().layers; ++layer) {
    for (int head = 0; head < trained.config().kv_heads; ++head) {
      const HeadSamples samples = capture.take(layer, head);
      ASSERT_FALSE(samples.slopes.empty());
      HeadSamples unbiased = samples;
      unbiased.slopes.clear();
      for (size_t query = 0; query < samples.query_count(); ++query) {
        const std::vector<float> scores = scores_of(samples, query, 0);
        const std::vector<double> weights = weights_of(samples, scores);
        const TokenSet best = best_tokens(scores, kBest);
        const TokenSet others = best_tokens(scores_of(unbiased, query, 0), kBest);
        for (size_t i = 0; i < best.size(); ++i) same += best[i] & others[i];
        all += kBest;
        with += sum_over(best, weights);
        without += sum_over(others, weights);
      }
    }
  }
  EXPECT_LT(same, all / 2);
  EXPECT_LT(without, 0.8 * with);
}

// Half of 32 dimensions are rotated: 8 pairs, and 16 chunks of one dimension.
TEST(PartialRotaryModel, RankingTakesPairsAndSingleDimensions) {
  TrainedModel trained("partial-400k");
  const FcMap map = trained.calibrate();
  size_t pairs_first = 0, singles_first = 0;
  for (const auto& layer : map.heads) {
    for (const auto& head : layer) {
      ASSERT_EQ(head.chunks.size(), 24u);
      for (size_t place = 0; place < 8; ++place) {
        (head.chunks[place].size() == 2 ? pairs_first : singles_first) += 1;
      }
    }
  }
  EXPECT_GT(pairs_first, 0u);
  EXPECT_GT(singles_first, 0u);
}

// Tokens chosen by the default slices' scores keep most of the distant attention that those chosen
// by the true scores do.
TEST(BundledModel, DefaultSlicesKeepTheDistantAttention) {
  TrainedModel trained("needle-3m");
  AttentionCapture capture = trained.capture();
  std::vector<int16_t> dims;
  for (int16_t dim = 0; dim < trained.config().head_dim; ++dim) dims.push_back(dim);
  std::vector<HeadSamples> heads;
  for (int layer = 0; layer < trained.config().layers; ++layer) {
    heads.push_back(capture.take(layer, 0));
  }
  for (const int64_t budget : {64, 128, 256}) {
    double by_slices = 0, by_scores = 0;
    for (const HeadSamples& samples : heads) {
      const HeadSamples coded = coded_samples(samples, SliceDType::kInt2, dims);
      for (size_t query = 0; query < samples.query_count(); ++query) {
        const std::vector<float> scores = scores_of(samples, query, 0);
        const std::vector<double> weights = weights_of(samples, scores);
        by_scores += distant_weight(best_tokens(scores, budget), weights);
        by_slices += distant_weight(best_tokens(scores_of(coded, query, 0), budget), weights);
      }
    }
    EXPECT_GE(by_slices / by_scores, 0.95) << budget;
    EXPECT_LE(by_slices, by_scores * 1.02) << budget;
  }
}

}  // namespace
}  // namespace fasa
