// The CUDA device's select under the interpreter: its page scores against the reference, and its
// sets against a full sort of its own scores, and of the reference's scores where all sums are
// exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/select/select_inl.h"
#include "tests/kernels/low_bit_pages_case.h"
#include "tests/kernels/runners_up_case.h"
#include "tests/kernels/select_inputs.h"
#include "tests/simt/page_scores.h"
#include "tests/simt/scores_kernel.h"
#include "tests/simt/simt_case.h"
#include "tests/support/reference/kernels.h"

namespace fasa {
namespace {

using Order = SimtInterpreter::Order;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void fill_randomly(std::span<std::byte> memory, std::mt19937& random) {
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
}

class SimtSelect {
 public:
  SimtSelect(SelectCase& cache, Order order, unsigned seed = 3, int multiprocessors = 2)
      : params_(cache.params()),
        scratch_(static_cast<size_t>(cuda::SelectScratch::of(params_).bytes())),
        random_(seed),
        interpreter_(order, seed),
        launch_(interpreter_, multiprocessors) {
    params_.scratch = scratch_.data();
  }
  SelectParams& params() { return params_; }
  // Runs with scratch of arbitrary contents.
  void run() {
    fill_randomly(scratch_, random_);
    cuda::start(params_, launch_);
  }
  void run_over(std::span<const std::byte> before) {
    std::copy_n(before.begin(), std::min(before.size(), scratch_.size()), scratch_.begin());
    cuda::start(params_, launch_);
  }
  std::span<const std::byte> scratch() const { return scratch_; }
  reference::GroupScores scores(int sequence, int kv_head) {
    const SelectPlan plan = plan_selection(params_, params_.step.sequences[sequence]);
    reference::GroupScores own;
    own.heads = params_.step.layout.gqa_group;
    own.raw.resize(static_cast<size_t>(own.heads * plan.visible()));
    const cuda::ScorerLayout layout =
        cuda::SelectKernel::scorer_layout(params_, launch_.compute_capability());
    launch_(cuda::ScoresKernel{{params_, {}, layout, 1}, sequence, kv_head, own.raw.data()},
            {.shared_bytes = layout.bytes()});
    return own;
  }

 private:
  SelectParams params_;
  std::vector<std::byte> scratch_;
  std::mt19937 random_;
  SimtInterpreter interpreter_;
  SimtLauncher launch_;
};

void expect_own_sort(SelectCase& cache, Order order = Order::kRandom) {
  SimtSelect select(cache, order);
  const SelectParams& params = select.params();
  select.run();
  for (int s = 0; s < params.step.count; ++s) {
    const SelectPlan plan = plan_selection(params, params.step.sequences[s]);
    for (int h = 0; h < params.step.layout.kv_heads; ++h) {
      const reference::GroupScores own =
          plan.is_dense() ? reference::GroupScores{} : select.scores(s, h);
      EXPECT_EQ(cache.set_of(s, h), sorted_set(plan, own)) << "sequence " << s << " head " << h;
    }
  }
}

void expect_scores(SimtSelect& select, int sequence, int kv_head) {
  expect_scores(select.params(), sequence, kv_head, select.scores(sequence, kv_head).raw);
}

class SimtSelectOf : public ::testing::TestWithParam<SliceDType> {};

TEST_P(SimtSelectOf, ScoresAreTheReferences) {
  for (const int dims : {2, 6, 30, 64, 80, 128}) {
    for (const int group : {1, 3, 4, 9}) {
      SelectShape shape{GetParam(), dims, 1, group, 4, 16, 0, 32};
      SelectCase cache(shape, {200}, gaussian_keys(1), gaussian_queries(1));
      SCOPED_TRACE(::testing::Message() << "dims " << dims << " group " << group);
      SimtSelect select(cache, Order::kRising);
      expect_scores(select, 0, 0);
      if (GetParam() != SliceDType::kInt2 || dims < 4) continue;
      shape.fine = dims / 4 * 2;
      SelectCase fine(shape, {200}, gaussian_keys(1), gaussian_queries(1));
      SimtSelect of_parts(fine, Order::kRising);
      expect_scores(of_parts, 0, 0);
    }
  }
}

TEST_P(SimtSelectOf, EveryLengthAndBudgetGivesTheFullSort) {
  for (const int tokens : {1, 64, 65, 1000, 2049, 4097}) {
    for (const int budget : {21, 256}) {
      SelectShape shape{GetParam(), 16, 1, tokens == 1000 ? 3 : 4, 4, 16, 0, budget};
      SelectCase cache(shape, {tokens}, gaussian_keys(static_cast<unsigned>(tokens)),
                       gaussian_queries(2));
      SCOPED_TRACE(::testing::Message() << tokens << " tokens, budget " << budget);
      expect_own_sort(cache);
    }
  }
}

TEST_P(SimtSelectOf, GroupsWindowsAndSequences) {
  for (const int group : {1, 8}) {
    for (const int window : {0, 21, 2500}) {
      SelectShape shape{GetParam(), 10, 2, group, 4, 16, window, 64};
      SelectCase cache(shape, {2600, 70}, gaussian_keys(7), gaussian_queries(7));
      SCOPED_TRACE(::testing::Message() << "group " << group << " window " << window);
      expect_own_sort(cache);
    }
  }
}

// ALiBi changes each score by its bias; the set is the one of the biased scores.
TEST_P(SimtSelectOf, AlibiLowersWhatIsFar) {
  for (const int group : {1, 3, 9}) {
    for (const int window : {0, 100}) {
      SelectShape shape{GetParam(), 10, 2, group, 4, 16, window, 64};
      SelectCase plain(shape, {2500, 70}, gaussian_keys(7), gaussian_queries(7));
      for (int head = 0; head < 2 * group; ++head) {
        shape.slopes.push_back(0.5f / static_cast<float>(head + 1));
      }
      SelectCase cache(shape, {2500, 70}, gaussian_keys(7), gaussian_queries(7));
      expect_own_sort(cache);
      SimtSelect sloping(cache, Order::kFalling), level(plain, Order::kFalling);
      for (int kv_head = 0; kv_head < 2; ++kv_head) {
        const SelectPlan plan = plan_selection(cache.params(), cache.params().step.sequences[0]);
        const auto own = sloping.scores(0, kv_head).raw, flat = level.scores(0, kv_head).raw;
        for (size_t i = 0; i < own.size(); ++i) {
          const auto visible = static_cast<size_t>(plan.visible());
          const float slope = shape.slopes[static_cast<size_t>(kv_head * group) + i / visible];
          const int position = plan.first + static_cast<int>(i % visible);
          ASSERT_NEAR(own[i] - flat[i], slope * static_cast<float>(position - 2499), 1e-3f);
        }
      }
    }
  }
}

TEST_P(SimtSelectOf, SoftCap) {
  for (const int group : {1, 3, 9}) {
    SelectShape shape{GetParam(), 10, 2, group, 4, 16, group == 3 ? 100 : 0, 64};
    shape.score_cap = 1.5f;
    SelectCase cache(shape, {2500, 70}, gaussian_keys(7), gaussian_queries(7));
    SCOPED_TRACE(::testing::Message() << "group " << group);
    expect_own_sort(cache);
    SimtSelect select(cache, Order::kRising);
    expect_scores(select, 0, 1);
  }
}

TEST_P(SimtSelectOf, PartsOfTheSliceAndPredictions) {
  for (const int score_dims : {1, 17, 100}) {
    for (const int tokens : {1, 64, 65, 2300}) {
      SCOPED_TRACE(::testing::Message() << score_dims << " dims, " << tokens << " tokens");
      SelectShape shape{GetParam(), 40, 2, 3, 4, 16, tokens == 2300 ? 2200 : 0, 50, score_dims, 2};
      SelectCase cache(shape, {tokens}, gaussian_keys(7), gaussian_queries(7));
      expect_own_sort(cache);
      SimtSelect select(cache, Order::kRising);
      expect_scores(select, 0, 1);
    }
  }
}

// Integers whose products and sums are exact, in f16 too.
TEST_P(SimtSelectOf, ExactSumsGiveTheReferencesSet) {
  const SliceDType dtype = GetParam();
  std::mt19937 random(11);
  for (const int group : {1, 4, 5}) {
    for (const int tokens : {300, 3000}) {
      SelectShape shape{dtype, 32, 1, group, 4, 16, 0, 100};
      const auto small = [&](unsigned range, int middle) {
        return static_cast<float>(static_cast<int>(random() % range) - middle);
      };
      SelectCase cache(
          shape, {tokens}, [&](int, int, int, int) { return small(5, 2); },
          [&](int, int, int) { return small(15, 7); });
      if (is_coded(dtype)) {
        fill_with_codes(cache, tokens, 2, random);
      }
      SCOPED_TRACE(::testing::Message() << "group " << group << " tokens " << tokens);
      reference::select(cache.params());
      const std::vector<int32_t> expected = cache.set_of(0, 0);
      SimtSelect(cache, Order::kFalling).run();
      EXPECT_EQ(cache.set_of(0, 0), expected);
      expect_own_sort(cache);
    }
  }
}

TEST_P(SimtSelectOf, EqualRowsAndZeroQueriesGoToTheLowerPositions) {
  for (const int tokens : {100, 2100, 9100}) {
    SelectShape shape{GetParam(), 4, 1, 2, 4, 16, 0, 50};
    SelectCase zeros(shape, {tokens}, gaussian_keys(3), [](int, int, int) { return 0.0f; });
    const std::vector<int32_t> expected = first_and_recent(34, tokens);
    SimtSelect(zeros, Order::kRandom).run();
    EXPECT_EQ(zeros.set_of(0, 0), expected);
    // Sealed and unsealed pages of equal rows may round differently.
    SelectCase equal(
        shape, {tokens}, [](int, int, int, int d) { return static_cast<float>(d); },
        [](int, int, int) { return 1.0f; });
    expect_own_sort(equal);
  }
}

// More equal tokens than the list of candidates holds: all scores are ranked, in windows.
TEST(SimtSelect, MoreTiesThanRoomAndWindow) {
  constexpr int kTokens = 70000;
  SelectShape shape{SliceDType::kBF16, 2, 1, 1, 4, 16, 0, 300};
  SelectCase cache(
      shape, {kTokens},
      [](int, int, int t, int) {
        return t > 65000 && t % 100 == 0 ? 2.0f : t % 3 == 0 ? 1.0f : 0.0f;
      },
      [](int, int, int) { return 1.0f; });
  SelectParams roomy = cache.params();
  SimtSelect select(cache, Order::kRising);
  select.params().selected_capacity = 300;  // the buffer's size follows from it
  ASSERT_LT(cuda::SelectScratch::of(select.params()).capacity, kTokens / 3);
  select.run();
  std::vector<int32_t> set(select.params().sets, select.params().sets + 300);
  reference::select(roomy);
  EXPECT_EQ(set, cache.set_of(0, 0));
}

TEST_P(SimtSelectOf, MisleadingKeysLoseNothing) {
  for (const auto& key : misleading_keys()) {
    for (const int group : {1, 4}) {
      SelectShape shape{GetParam(), 4, 1, group, 4, 16, 0, 120};
      SelectCase cache(shape, {6000}, key,
                       [](int, int h, int d) { return h % 4 == d ? 2.0f : 0.25f; });
      expect_own_sort(cache);
    }
  }
}

TEST_P(SimtSelectOf, NaNAndInfinitiesAreCountedAndOrdered) {
  if (is_coded(GetParam())) {
    // Codes hold no NaN: only a query can contain a NaN or an infinity.
    for (const float odd : {kNaN, kInfinity, -kInfinity}) {
      SelectShape shape{GetParam(), 8, 1, 2, 4, 16, 0, 40};
      SelectCase cache(shape, {500}, gaussian_keys(5),
                       [odd](int, int h, int d) { return h == 1 && d == 2 ? odd : 1.0f; });
      expect_own_sort(cache);
      SimtSelect select(cache, Order::kRising);
      select.run();
      const uint64_t counted = cache.counters().nan_scores;
      const std::vector<int32_t> set = cache.set_of(0, 0);
      reference::select(cache.params());
      EXPECT_EQ(counted, cache.counters().nan_scores);
      EXPECT_TRUE(!std::isnan(odd) || counted == 500u) << counted;
    }
    return;
  }
  for (const int tokens : {500, 3000}) {
    SelectShape shape{GetParam(), 8, 1, 2, 4, 16, 0, 40};
    SelectCase cache(shape, {tokens}, odd_keys(), [](int, int, int) { return 0.5f; });
    SimtSelect(cache, Order::kRandom).run();
    EXPECT_EQ(cache.counters().nan_scores, static_cast<uint64_t>(tokens / 100 * 2));
    const std::vector<int32_t> set = cache.set_of(0, 0);
    EXPECT_TRUE(std::binary_search(set.begin(), set.end(), 77));
    EXPECT_FALSE(std::binary_search(set.begin(), set.end(), 50));
    expect_own_sort(cache);
  }
}

TEST_P(SimtSelectOf, NothingButNaNStillFillsTheSet) {
  for (const int tokens : {500, 2500}) {
    SelectShape shape{GetParam(), 4, 1, 2, 4, 16, 0, 60};
    SelectCase cache(
        shape, {tokens}, [](int, int, int, int) { return 1.0f; },
        [](int, int, int) { return kNaN; });
    SimtSelect(cache, Order::kRandom).run();
    EXPECT_EQ(cache.set_of(0, 0), first_and_recent(44, tokens));
    EXPECT_EQ(cache.counters().nan_scores, 2u * static_cast<unsigned>(tokens));
  }
}

TEST_P(SimtSelectOf, BlocksBatchAndOrderChangeNothing) {
  SelectShape shape{GetParam(), 16, 2, 4, 4, 16, 0, 60};
  const std::vector<int> lengths = {4200, 1, 700, 64};
  SelectCase cache(shape, lengths, gaussian_keys(9), gaussian_queries(9));
  cache.descriptor(2).mode = StepMode::kPrefill;
  std::vector<std::vector<int32_t>> expected;
  for (const SimtRun& run : simt_runs()) {
    for (const int multiprocessors : {1, 12}) {
      SimtSelect(cache, run.order, run.seed, multiprocessors).run();
      std::vector<std::vector<int32_t>> sets;
      for (int s = 0; s < 4; ++s) {
        for (int h = 0; h < 2; ++h) sets.push_back(cache.set_of(s, h));
      }
      if (expected.empty()) expected = sets;
      EXPECT_EQ(sets, expected);
    }
  }
  EXPECT_TRUE(expected[4].empty());
}

// Scratch from an earlier call, of this shape or another, and contents that no call leaves.
TEST_P(SimtSelectOf, OldScratchMeansNothing) {
  const auto case_of = [](std::vector<int> lengths, int group, int budget) {
    SelectShape shape{GetParam(), 8, 2, group, 4, 16, 0, budget};
    return SelectCase(shape, lengths, gaussian_keys(13), gaussian_queries(13));
  };
  SelectCase cache = case_of({4200, 500, 2100}, 4, 60);
  SelectCase smaller = case_of({2300}, 3, 300);
  SelectCase ties(
      {GetParam(), 8, 2, 4, 4, 16, 0, 60}, {9000, 9000, 9000},
      [](int, int, int, int) { return 1.0f; }, [](int, int, int) { return 1.0f; });
  std::vector<std::vector<std::byte>> contents = {
      std::vector<std::byte>(1 << 22, std::byte{0}),
      std::vector<std::byte>(1 << 22, std::byte{0xFF}),
      std::vector<std::byte>(1 << 22, std::byte{0x7F}),
  };
  for (SelectCase* before : {&cache, &smaller, &ties}) {
    SimtSelect select(*before, Order::kRising);
    select.run();
    contents.emplace_back(select.scratch().begin(), select.scratch().end());
  }
  for (const SimtRun& run : simt_runs()) {
    for (const std::vector<std::byte>& before : contents) {
      SimtSelect select(cache, run.order, run.seed, 12);
      select.run_over(before);
      for (int i = 0; i < 6; ++i) {
        const SelectPlan plan =
            plan_selection(select.params(), select.params().step.sequences[i / 2]);
        EXPECT_EQ(cache.set_of(i / 2, i % 2), sorted_set(plan, select.scores(i / 2, i % 2)))
            << name_of(run) << " head " << i;
      }
    }
  }
}

// Magnitudes near the limits of f32.
TEST_P(SimtSelectOf, HugeAndTinyValues) {
  for (const float q : {1e-38f, 3e38f, 1e30f, 1e-40f}) {
    SelectShape shape{GetParam(), 8, 1, 2, 4, 16, 0, 40};
    const auto gaussian = gaussian_queries(5);
    SelectCase cache(shape, {2200}, gaussian_keys(5), [&](int s, int h, int d) {
      return std::clamp(gaussian(s, h, d), -1.0f, 1.0f) * q;
    });
    expect_own_sort(cache);
    SimtSelect select(cache, Order::kRising);
    SCOPED_TRACE(q);
    expect_scores(select, 0, 0);
  }
}

// Wide heads: shared memory holds few heads' queries, and only some of a block's warps score.
TEST_P(SimtSelectOf, WideHeadsAndManyOfThem) {
  SimtInterpreter interpreter;
  const int capability = SimtLauncher(interpreter).compute_capability();  // 75: from its PTX
  for (const auto& [group, dims] : {std::pair{16, 576}, {71, 64}, {4, 1024}}) {
    if (!cuda_holds_queries(group, dims, capability)) continue;
    SelectShape shape{GetParam(), dims, 1, group, 4, 16, 0, 64};
    SelectCase cache(shape, {2200}, gaussian_keys(7), gaussian_queries(7));
    const cuda::ScorerLayout scorers = cuda::SelectKernel::scorer_layout(cache.params(), 80);
    EXPECT_LT(scorers.warps, 8);
    SCOPED_TRACE(::testing::Message() << group << " heads of " << dims << ", " << scorers.warps);
    expect_own_sort(cache);
    SimtSelect select(cache, Order::kFalling);
    expect_scores(select, 0, 0);
  }
}

// Every shape that the runtime accepts fits on all GPUs.
TEST(SimtSelect, QueriesThatAreLetThroughFit) {
  for (const int capability : {75, 80}) {
    for (int dims = 2; dims <= 1024; dims += 2) {
      int group = 1;
      while (cuda_holds_queries(group + 1, dims, capability)) ++group;
      ASSERT_GE(group, capability < 80 ? 3 : 8) << dims;
      SelectParams params;
      params.step.layout.gqa_group = group;
      params.step.layout.slice = {SliceDType::kInt2, dims};
      const int64_t scorers = cuda::SelectKernel::scorer_layout(params, capability).bytes();
      ASSERT_LE(scorers, cuda::SelectKernel::max_shared(capability))
          << group << " heads of " << dims << " on " << capability;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SimtSelectOf, ::testing::ValuesIn(kSelectDTypes),
                         [](const auto& test) {
                           return std::string(slice_dtype_name(test.param));
                         });

TEST(SimtSelect, TakesHalfPrecisionAndStridedQueries) {
  SelectShape shape{SliceDType::kInt4, 8, 1, 2, 1, 4, 0, 20};
  SelectCase cache(shape, {300}, gaussian_keys(4),
                   [](int, int h, int d) { return StridedQueries::value(h, d); });
  SimtSelect select(cache, Order::kRising);
  select.run();
  const std::vector<int32_t> expected = cache.set_of(0, 0);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const StridedQueries queries(dtype);
    select.params().q = queries.view();
    select.run();
    EXPECT_EQ(cache.set_of(0, 0), expected);
  }
}

low_bit_case::Select low_bit_select(unsigned seed) {
  return [seed](const SelectParams& given) {
    SelectParams params = given;
    std::vector<std::byte> scratch(static_cast<size_t>(cuda::SelectScratch::of(params).bytes()));
    std::mt19937 random(seed);
    fill_randomly(scratch, random);
    params.scratch = scratch.data();
    SimtInterpreter interpreter(Order::kRandom, seed);
    cuda::start(params, SimtLauncher(interpreter, 2));
  };
}

TEST(SelectBody, HeadsInPartsHaveTheSameSets) {
  SelectShape shape{SliceDType::kInt2, 8, 3, 2, 4, 16, 0, 60};
  SelectCase cache(shape, {3000, 1, 400}, gaussian_keys(11), gaussian_queries(11));
  SimtSelect select(cache, Order::kRandom);
  expect_same_in_parts(cache, select.params(), [&](const SelectParams& params) {
    select.params() = params;
    select.run();
  });
}

// Fewer and more than the low-bit set, or without one; ties and unordered keys.
TEST(RunnersUpSelectBody, AreInOrder) {
  for (low_bit_case::LowBitShape shape : low_bit_case::select_shapes()) {
    if (shape.lengths[0] > 6000) shape.lengths = {9000};  // the interpreter is slow
    SCOPED_TRACE(::testing::Message() << slice_dtype_name(shape.select.dtype) << " low-bit "
                                      << shape.low_bit.tokens << " of " << shape.lengths[0]);
    const bool ties = shape.select.score_cap > 0;  // more than can be sorted
    runners_up_case::expect_ranked(shape, 30, gaussian_keys(3), low_bit_select(5), ties);
    shape.low_bit = {};
    runners_up_case::expect_ranked(shape, 7, gaussian_keys(3), low_bit_select(5), ties);
  }
  for (const SelectCase::KeyOf& key : misleading_keys()) {
    low_bit_case::LowBitShape shape;
    shape.select.dims = 4, shape.select.group = 2;
    shape.lengths = {5000, 1300};
    shape.low_bit.tokens = 40;
    runners_up_case::expect_ranked(shape, 25, key, low_bit_select(6), true);
  }
}

TEST(LowBitSelectBody, IsTheNextBest) {
  for (low_bit_case::LowBitShape shape : low_bit_case::select_shapes()) {
    if (shape.lengths[0] > 6000) shape.lengths = {9000};  // the interpreter is slow
    SCOPED_TRACE(::testing::Message() << slice_dtype_name(shape.select.dtype) << " low-bit "
                                      << shape.low_bit.tokens << " of " << shape.lengths[0]);
    low_bit_case::expect_next_best(shape, gaussian_keys(3), low_bit_select(5));
  }
}

// Ranks among candidates, and among all scores.
TEST(LowBitSelectBody, TiesAndMisleadingKeys) {
  std::vector<SelectCase::KeyOf> keys = misleading_keys();
  keys.push_back([](int, int, int, int) { return 1.0f; });
  keys.push_back([](int, int, int t, int) { return static_cast<float>(t / 700); });
  for (const SelectCase::KeyOf& key : keys) {
    for (const int low_bit : {1, 40, 3000}) {
      low_bit_case::LowBitShape shape;
      shape.select.dims = 4, shape.select.group = 2;
      shape.lengths = {5000, 1300};
      shape.low_bit.tokens = low_bit;
      low_bit_case::expect_next_best(shape, key, low_bit_select(6));
    }
  }
}

TEST(LowBitPagesBody, ScoresOfAllOthers) {
  for (low_bit_case::LowBitShape shape : low_bit_case::select_shapes()) {
    if (shape.lengths[0] > 6000) shape.lengths = {9000};  // the interpreter is slow
    SCOPED_TRACE(::testing::Message() << slice_dtype_name(shape.select.dtype) << " of "
                                      << shape.lengths[0] << ", group " << shape.select.group);
    low_bit_case::expect_all_others(shape, gaussian_keys(3), low_bit_select(5));
  }
}

// Tokens of one sequence, the first of `cache`, that select together; then one that takes no part.
std::vector<SequenceDesc> tokens_together(SelectCase& cache, int count) {
  std::vector<SequenceDesc> tokens(static_cast<size_t>(count), cache.params().step.sequences[0]);
  for (int i = 0; i < count; ++i) {
    SequenceDesc& token = tokens[static_cast<size_t>(i)];
    token.start += i - (count - 1), token.first_token = i, token.earlier = i;
  }
  tokens.back() = {.mode = StepMode::kPrefill};
  return tokens;
}

TEST(LowBitPagesBody, TokensTogetherSelectAsAlone) {
  std::vector<SelectShape> shapes;
  for (const SliceDType dtype : kSelectDTypes) {
    shapes.push_back({.dtype = dtype, .kv_heads = 2, .group = 2, .budget = 64, .value_dim = 8});
  }
  shapes.push_back({.group = 1, .window = 200, .slopes = {0.25f}, .value_dim = 8});
  shapes.push_back({.dims = 30, .group = 3, .budget = 96, .value_dim = 8, .score_cap = 2});
  for (const SelectShape& shape : shapes) {
    for (const int length : {72, 1000, 1100}) {  // all in one page
      const int count = 8 / shape.group;
      const auto query = [](int sequence, int head, int d) {
        const bool infinite = sequence == 1 && head == 0 && d == 1;
        return infinite ? kInfinity : gaussian_queries(9)(sequence, head, d);
      };
      SelectCase cache(shape, std::vector<int>(static_cast<size_t>(count), length),
                       gaussian_keys(3), query);
      const std::vector<SequenceDesc> tokens = tokens_together(cache, count);
      const auto selected = [&](int together) {
        return low_bit_case::select_pages(cache, 0.3f, [&](SelectParams params) {
          params.step.sequences = tokens.data();
          params.step.together = together;
          low_bit_select(5)(params);
        });
      };
      EXPECT_TRUE(selected(count) == selected(1))
          << slice_dtype_name(shape.dtype) << " group " << shape.group << ", " << length;
    }
  }
}

TEST(LowBitPagesBody, MisleadingKeys) {
  for (const SelectCase::KeyOf& key : misleading_keys()) {
    low_bit_case::LowBitShape shape;
    shape.select.dims = 4, shape.select.group = 2;
    shape.lengths = {5000, 1300};
    low_bit_case::expect_all_others(shape, key, low_bit_select(6));
  }
}

}  // namespace
}  // namespace fasa
