// The bodies of FAC (kernels/cuda/attend_inl.h): against the f64 reference, and bit for bit equal
// across phases, waves, partials and row locations.
#include "kernels/cuda/attend_inl.h"

#include "tests/kernels/attend_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

using namespace attend_case;

class AttendBody : public ::testing::Test {
 protected:
  explicit AttendBody(const SimtRun& run = {SimtInterpreter::Order::kRandom, 3})
      : interpreter_(run.order, run.seed) {}
  Cut cut() {
    Cut made;
    made.run = [this](const AttendParams& params) {
      cuda::start(params, SimtLauncher(interpreter_));
    };
    return made;
  }
  SimtInterpreter interpreter_;
};

class AttendBodyInOrders : public AttendBody, public ::testing::WithParamInterface<SimtRun> {
 protected:
  AttendBodyInOrders() : AttendBody(GetParam()) {}
};

TEST_P(AttendBodyInOrders, Lengths) {
  RowShape shape;
  shape.kv_heads = 1, shape.key_dim = 16, shape.value_dim = 10;
  for (const int length : {1, 32, 75}) {
    SCOPED_TRACE(length);
    expect_all_cuts_equal(Decode(shape, {length}), cut(), {32});
  }
}

struct Shape {
  int group, key_dim, value_dim;
};

// Groups that take several blocks, odd dimensions, more dimensions than a block has threads. In one
// thread order.
TEST_F(AttendBody, Shapes) {
  for (const Shape& of : {Shape{1, 2, 2},
                          {3, 33, 7},
                          {5, 80, 80},
                          {3, 96, 96},
                          {2, 256, 256},
                          {2, 512, 512},
                          {4, 192, 128},
                          {17, 34, 70},
                          {33, 8, 6}}) {
    SCOPED_TRACE(::testing::Message() << of.group << " " << of.key_dim << " " << of.value_dim);
    RowShape shape;
    shape.kv_heads = 1;
    shape.group = of.group, shape.key_dim = of.key_dim, shape.value_dim = of.value_dim;
    shape.slices = of.key_dim % 2 == 0;
    expect_all_cuts_equal(Decode(shape, {37}), cut(), {0});
  }
}

TEST_F(AttendBody, CodedShapes) {
  for (const Shape& of : {Shape{1, 32, 32},
                          {3, 35, 33},
                          {5, 80, 80},
                          {2, 256, 256},
                          {2, 512, 512},
                          {4, 192, 128},
                          {17, 34, 70}}) {
    SCOPED_TRACE(::testing::Message() << of.group << " " << of.key_dim << " " << of.value_dim);
    RowShape shape;
    shape.row = RowDType::kInt8, shape.kv_heads = 1;
    shape.group = of.group, shape.key_dim = of.key_dim, shape.value_dim = of.value_dim;
    shape.slices = of.key_dim % 2 == 0;
    expect_all_cuts_equal(Decode(shape, {37}), cut(), {0});
  }
}

TEST_P(AttendBodyInOrders, CodedRows) {
  RowShape shape;
  shape.row = RowDType::kInt8, shape.kv_heads = 1, shape.key_dim = 32, shape.value_dim = 34;
  shape.device_copies = true;
  expect_all_cuts_equal(Decode(shape, {103, 20}), cut(), {64});
}

// Tiles whose rows do not fit into shared memory beside the queries are read in place.
TEST_F(AttendBody, RowsInPlace) {
  for (const RowDType row : kRowDTypes) {
    RowShape shape;
    shape.row = row, shape.kv_heads = 1, shape.group = row.is_coded() ? 8 : 2;
    shape.key_dim = 512, shape.value_dim = row.is_coded() ? 576 : 512;
    Cut in_tiles = cut();
    in_tiles.partials = true;
    expect_all_cuts_equal(Decode(shape, {37}), in_tiles, {0});
  }
}

TEST_F(AttendBody, ElementTypes) {
  for (const RowDType row : kRowDTypes) {
    for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
      RowShape shape;
      shape.row = row, shape.input = input, shape.key_dim = 40;
      shape.value_dim = row.is_coded() ? 36 : 24;
      expect_all_cuts_equal(Decode(shape, {50}), cut(), {0});
    }
  }
}

TEST_P(AttendBodyInOrders, WindowsAndDeviceCopies) {
  for (const int window : {1, 70, 1000}) {
    SCOPED_TRACE(window);
    Cut windowed = cut();
    windowed.window = window;
    RowShape shape;
    shape.kv_heads = 1, shape.key_dim = 16, shape.value_dim = 10;
    shape.device_copies = window == 70;
    expect_all_cuts_equal(Decode(shape, {103, 20}), windowed, {64});
  }
}

// Codes of every width, values of the tail, groups that take several blocks, odd dimensions.
TEST_F(AttendBody, LowBitSets) {
  int turn = 0;
  for (const Shape& of : {Shape{1, 2, 2}, {4, 16, 33}, {3, 8, 64}, {17, 8, 6}}) {
    const SliceDType values[] = {SliceDType::kInt2, SliceDType::kInt4, SliceDType::kInt8};
    SCOPED_TRACE(::testing::Message() << of.group << " " << of.value_dim);
    RowShape shape;
    shape.kv_heads = 2, shape.values = values[turn++ % 3];
    shape.group = of.group, shape.key_dim = of.key_dim, shape.value_dim = of.value_dim;
    Cut low_bit = cut();
    low_bit.set.emplace();
    for (int position = 0; position < 150; position += 4) low_bit.set->push_back(position);
    for (int position = 1; position < 150; position += 1 + position % 4) {
      if (position % 4 != 0) low_bit.low_bit.push_back(position);
    }
    expect_all_cuts_equal(Decode(shape, {150, 190}), low_bit, {0, 32});
  }
}

// All other tokens by page: codes of every width, the tail, odd dimensions, more pages than a block
// has, several passes over the heads of a GQA group and over the words of a value.
TEST_F(AttendBody, LowBitPages) {
  int turn = 0;
  for (const Shape& of : {Shape{1, 2, 2}, {4, 16, 33}, {3, 8, 64}, {17, 8, 6}, {2, 8, 256}}) {
    const SliceDType values[] = {SliceDType::kInt2, SliceDType::kInt4, SliceDType::kInt8};
    SCOPED_TRACE(::testing::Message() << of.group << " " << of.value_dim);
    RowShape shape;
    shape.kv_heads = 2, shape.values = of.value_dim == 256 ? SliceDType::kInt8 : values[turn++ % 3];
    shape.group = of.group, shape.key_dim = of.key_dim, shape.value_dim = of.value_dim;
    Cut pages = cut();
    pages.low_bit_pages = true;
    pages.tolerance = kF16WeightTolerance;
    pages.set.emplace();
    for (int position = 0; position < 150; position += 4) pages.set->push_back(position);
    const std::vector<int> lengths =
        turn == 1 ? std::vector<int>{1100, 192} : std::vector<int>{150, 190};
    expect_all_cuts_equal(Decode(shape, lengths), pages, {0, 32});
  }
}

// Tokens of one sequence that share its pages; the last of them takes no part.
TEST_F(AttendBody, LowBitPagesOfTokensTogether) {
  int turn = 0;
  for (const int group : {1, 2, 3, 4}) {
    const SliceDType values[] = {SliceDType::kInt2, SliceDType::kInt4, SliceDType::kInt8};
    const int count = group == 1 ? 5 : 8 / group;
    RowShape shape;
    shape.kv_heads = 2, shape.values = values[turn++ % 3];
    shape.group = group, shape.key_dim = 8, shape.value_dim = 72;
    Decode decode(shape, std::vector<int>(static_cast<size_t>(count), 1500));
    std::vector<SequenceDesc>& tokens = decode.step.descs;
    for (int i = 0; i < count; ++i) {
      tokens[static_cast<size_t>(i)] = tokens[0];
      tokens[static_cast<size_t>(i)].first_token = i;
    }
    for (int i = 0; i < count; ++i) tokens[static_cast<size_t>(i)].start += i - (count - 1);
    if (count > 2) tokens.back().mode = StepMode::kPrefill;
    for (const int window : {0, 1500 - 64 * 3 - 2}) {  // there the first pages differ
      const auto result = [&](int together) {
        Cut pages;
        pages.low_bit_pages = pages.partials = true;
        pages.window = window;
        pages.set = {700, 1300};
        pages.run = [&](AttendParams params) {
          params.step.together = together;
          // Other scores for each token.
          const int64_t each = int64_t{params.low_bit_pages.capacity} * kPageTokens *
                               params.step.layout.query_heads();
          std::vector<int16_t> scores(params.low_bit_pages.scores,
                                      params.low_bit_pages.scores + count * each);
          for (int64_t i = 0; i < count * each; ++i) {
            int16_t& code = scores[static_cast<size_t>(i)];
            if (code != kNoScoreCode) code -= static_cast<int16_t>(i / each * (i % 5) * 40);
          }
          params.low_bit_pages.scores = scores.data();
          cuda::start(params, SimtLauncher(interpreter_));
        };
        return attention(decode.cache, decode.step, pages);
      };
      EXPECT_TRUE(result(count) == result(1)) << "group " << group << ", window " << window;
    }
  }
}

TEST_P(AttendBodyInOrders, SetsAndSetsOfAll) {
  RowShape shape;
  shape.key_dim = 16, shape.value_dim = 10;
  const Decode decode(shape, {200, 170});
  Cut chosen = cut();
  chosen.set.emplace();
  for (int position = 0; position < 170; position += 1 + position % 5) {
    chosen.set->push_back(position);
  }
  expect_all_cuts_equal(decode, chosen, {32});

  const Decode whole(RowShape(), {101});
  Cut all = cut();
  all.set.emplace();
  for (int position = 0; position < 101; ++position) all.set->push_back(position);
  EXPECT_TRUE(attention(whole.cache, whole.step, cut()) == attention(whole.cache, whole.step, all));
}

// Steep slopes for some heads: scores reach hundreds. The bias is exact, so the weights' error
// stays that of the dot product.
TEST_F(AttendBody, AlibiOfPagesAndSets) {
  for (const int group : {1, 3, 17}) {
    RowShape shape;
    shape.kv_heads = 2, shape.group = group, shape.key_dim = 34, shape.value_dim = 20;
    for (int head = 0; head < 2 * group; ++head) {
      shape.slopes.push_back(std::exp2(-static_cast<float>(head)));
    }
    const Decode decode(shape, {133, 65});
    Cut windowed = cut();
    windowed.window = 100;
    Cut chosen = cut();
    chosen.set.emplace();
    for (int position = 0; position < 64; position += 1 + position % 5) {
      chosen.set->push_back(position);
    }
    for (const Cut& plain : {cut(), windowed, chosen}) expect_all_cuts_equal(decode, plain, {32});

    RowShape level = shape;
    level.slopes.assign(shape.slopes.size(), 0.0f);
    RowShape none = shape;
    none.slopes.clear();
    const Decode flat(level, {133, 65}), without(none, {133, 65});
    const Result expected = attention(without.cache, without.step, cut());
    EXPECT_TRUE(attention(flat.cache, flat.step, cut()) == expected);
    EXPECT_FALSE(attention(decode.cache, decode.step, cut()) == expected);
  }
}

// Scores many times the cap, and scores far below it; with ALiBi, with coded rows, over pages and
// sets.
TEST_F(AttendBody, SoftCap) {
  for (const float cap : {0.3f, 2.0f, 1000.0f}) {
    for (const int group : {1, 5}) {
      RowShape shape;
      shape.kv_heads = 1, shape.group = group, shape.key_dim = 34, shape.value_dim = 40;
      if (cap == 2) shape.row = RowDType::kInt8;
      if (cap < 2) shape.slopes.assign(static_cast<size_t>(group), 0.25f);
      const RowShape bare = shape;
      shape.score_cap = cap;
      const Decode decode(shape, {133, 65}), without(bare, {133, 65});
      Cut chosen = cut();
      chosen.set.emplace();
      for (int position = 0; position < 65; position += 1 + position % 5) {
        chosen.set->push_back(position);
      }
      for (const Cut& plain : {cut(), chosen}) expect_all_cuts_equal(decode, plain, {32});
      const Result capped = attention(decode.cache, decode.step, cut());
      EXPECT_FALSE(capped == attention(without.cache, without.step, cut()));
    }
  }
}

TEST_P(AttendBodyInOrders, ABatchIsItsSequencesAlone) {
  const std::vector<int> lengths = {1, 140, 33};
  const Decode batch(RowShape(), lengths);
  const Result all = attention(batch.cache, batch.step, cut());
  for (size_t s = 0; s < lengths.size(); ++s) {
    RowStep alone = batch.step;
    alone.descs = {batch.step.descs[s]};
    const Result result = attention(batch.cache, alone, cut());
    const size_t width = 4 * 64;
    EXPECT_EQ(std::memcmp(result.out.data() + s * width, all.out.data() + s * width,
                          width * sizeof(float)),
              0);
  }
}

TEST_P(AttendBodyInOrders, InfiniteScoresAndValues) {
  RowShape shape;
  shape.kv_heads = 1, shape.group = 2;
  const auto keys = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kKey && dim == 0 && position % 96 < 64) return -INFINITY;
    const float value = noise(kind, sequence, layer, position, head, dim);
    return kind == InputKind::kQuery && dim == 0 ? 1.0f : value;
  };
  expect_all_cuts_equal(Decode(shape, {150}, keys), cut(), {32});
  const Decode nothing(shape, {40}, keys);
  const Result empty = attention(nothing.cache, nothing.step, cut());
  for (const float value : empty.out) EXPECT_EQ(value, 0);
  for (const float value : empty.lse) EXPECT_EQ(value, -INFINITY);
  const auto values = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kValue && dim == 3 && position == 50) return INFINITY;
    return noise(kind, sequence, layer, position, head, dim);
  };
  const Decode infinite(shape, {60}, values);
  const Result result = attention(infinite.cache, infinite.step, cut());
  for (size_t i = 0; i < result.out.size(); ++i) {
    EXPECT_EQ(std::isinf(result.out[i]), i % 64 == 3) << i;
  }
}

// A NaN among the scores reaches the output, whichever tile it is in.
TEST_P(AttendBodyInOrders, NaNIsNotLost) {
  RowShape shape;
  shape.kv_heads = 1, shape.group = 1;
  for (const int where : {0, 40, 69}) {
    const auto keys = [where](InputKind kind, int sequence, int layer, int position, int head,
                              int dim) {
      if (kind == InputKind::kKey && position == where) return NAN;
      return noise(kind, sequence, layer, position, head, dim);
    };
    const Decode decode(shape, {70}, keys);
    for (const bool partials : {false, true}) {
      Cut made = cut();
      made.partials = partials;
      const Result result = attention(decode.cache, decode.step, made);
      for (const float value : result.out) EXPECT_TRUE(std::isnan(value));
    }
  }
}

// More tiles than a fold takes at a time; the first ones are empty.
TEST_F(AttendBody, FoldsOfManyTiles) {
  RowShape shape;
  shape.kv_heads = 1, shape.group = 2, shape.key_dim = 8, shape.value_dim = 6;
  shape.slices = false;
  for (const int empty : {0, 20, 1030}) {
    SCOPED_TRACE(empty);
    const auto keys = [empty](InputKind kind, int sequence, int layer, int position, int head,
                              int dim) {
      if (kind == InputKind::kKey && dim == 0 && position < empty) return -INFINITY;
      const float value = noise(kind, sequence, layer, position, head, dim);
      return kind == InputKind::kQuery && dim == 0 ? 1.0f : value;
    };
    expect_all_cuts_equal(Decode(shape, {2100}, keys), cut(), {0, 1056});
  }
  for (const int where : {0, 1500}) {
    const auto keys = [where](InputKind kind, int sequence, int layer, int position, int head,
                              int dim) {
      if (kind == InputKind::kKey && position == where) return NAN;
      return noise(kind, sequence, layer, position, head, dim);
    };
    Cut made = cut();
    made.partials = true;
    const Decode decode(shape, {2100}, keys);
    for (const float value : attention(decode.cache, decode.step, made).out) {
      EXPECT_TRUE(std::isnan(value));
    }
  }
}

TEST_P(AttendBodyInOrders, PrefillSequencesAreLeftAlone) {
  Decode decode(RowShape(), {40, 50});
  decode.step.descs[0].mode = StepMode::kPrefill;
  const Result result = attention(decode.cache, decode.step, cut());
  EXPECT_EQ(result.out[0], -77);
  EXPECT_NE(result.out[4 * 64], -77);
}

INSTANTIATE_TEST_SUITE_P(Orders, AttendBodyInOrders, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
