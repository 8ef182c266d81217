// FAC and full attention, on every target of this processor: against the f64 reference, and bit for
// bit equal across phases, waves, threads, batches and row locations.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <cmath>
#include <cstring>

#include "tests/kernels/attend_case.h"

namespace fasa {
namespace {

using namespace attend_case;

class AttendTest : public ::testing::TestWithParam<cpu::Target> {
 protected:
  Cut cut() const {
    Cut made;
    made.run = [](const AttendParams& params) { cpu::attend_on(GetParam(), params); };
    return made;
  }
};

TEST_P(AttendTest, Lengths) {
  for (const int length : {1, 2, 31, 32, 33, 63, 64, 65, 500}) {
    SCOPED_TRACE(length);
    const Decode decode(RowShape(), {length});
    expect_all_cuts_equal(decode, cut());
  }
}

TEST_P(AttendTest, Shapes) {
  for (const int group : {1, 3, 4, 7, 8, 16}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{2, 2}, {64, 64}, {80, 80}, {128, 128}, {34, 70}, {192, 128}, {512, 512}}) {
      SCOPED_TRACE(::testing::Message() << group << " " << key_dim << " " << value_dim);
      RowShape shape;
      shape.group = group, shape.key_dim = key_dim, shape.value_dim = value_dim;
      const Decode decode(shape, {67});
      expect_all_cuts_equal(decode, cut());
    }
  }
}

TEST_P(AttendTest, CodedShapes) {
  for (const int group : {1, 3, 4, 7, 16}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{32, 32}, {33, 47}, {64, 64}, {128, 128}, {81, 70}, {576, 512}}) {
      SCOPED_TRACE(::testing::Message() << group << " " << key_dim << " " << value_dim);
      RowShape shape;
      shape.row = RowDType::kInt8;
      shape.group = group, shape.key_dim = key_dim, shape.value_dim = value_dim;
      const Decode decode(shape, {67});
      expect_all_cuts_equal(decode, cut(), {0, 32});
    }
  }
}

TEST_P(AttendTest, ElementTypes) {
  for (const RowDType row : kRowDTypes) {
    for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
      RowShape shape;
      shape.row = row, shape.input = input, shape.key_dim = 40;
      shape.value_dim = row.is_coded() ? 36 : 24;
      const Decode decode(shape, {100});
      expect_all_cuts_equal(decode, cut());
    }
  }
}

TEST_P(AttendTest, Windows) {
  for (const int window : {1, 5, 32, 64, 100, 1000}) {
    SCOPED_TRACE(window);
    const Decode decode(RowShape(), {333, 20});
    Cut windowed = cut();
    windowed.window = window;
    expect_all_cuts_equal(decode, windowed);
  }
}

TEST_P(AttendTest, Sets) {
  const Decode decode(RowShape(), {700, 900});
  Cut chosen = cut();
  chosen.set.emplace();
  for (int position = 0; position < 700; position += 1 + position % 5) {
    chosen.set->push_back(position);
  }
  expect_all_cuts_equal(decode, chosen);
}

TEST_P(AttendTest, SetOfAllTokensIsFullAttention) {
  for (const int window : {0, 77}) {
    const Decode decode(RowShape(), {301});
    Cut full = cut();
    full.window = window;
    Cut set = cut();
    set.set.emplace();
    for (int position = window > 0 ? 301 - window : 0; position < 301; ++position) {
      set.set->push_back(position);
    }
    EXPECT_TRUE(attention(decode.cache, decode.step, full) ==
                attention(decode.cache, decode.step, set));
  }
}

// Steep slopes for some heads: scores reach hundreds. The bias is exact, so the weights' error
// stays that of the dot product.
TEST_P(AttendTest, AlibiOfPagesAndSets) {
  for (const int group : {1, 3, 4, 7}) {
    RowShape shape;
    shape.kv_heads = 2, shape.group = group, shape.key_dim = 34, shape.value_dim = 20;
    for (int head = 0; head < 2 * group; ++head) {
      shape.slopes.push_back(std::exp2(-static_cast<float>(head)));
    }
    const Decode decode(shape, {333, 65});
    Cut windowed = cut();
    windowed.window = 100;
    Cut chosen = cut();
    chosen.set.emplace();
    for (int position = 0; position < 64; position += 1 + position % 5) {
      chosen.set->push_back(position);
    }
    for (const Cut& plain : {cut(), windowed, chosen}) expect_all_cuts_equal(decode, plain);

    RowShape level = shape;
    level.slopes.assign(shape.slopes.size(), 0.0f);
    RowShape none = shape;
    none.slopes.clear();
    const Decode flat(level, {333, 65}), without(none, {333, 65});
    EXPECT_TRUE(attention(flat.cache, flat.step, cut()) ==
                attention(without.cache, without.step, cut()));
    EXPECT_FALSE(attention(flat.cache, flat.step, cut()) ==
                 attention(decode.cache, decode.step, cut()));
  }
}

// Scores many times the cap, and scores far below it; with ALiBi, with coded rows, over pages and
// sets.
TEST_P(AttendTest, SoftCap) {
  for (const float cap : {0.3f, 2.0f, 1000.0f}) {
    for (const int group : {1, 5}) {
      RowShape shape;
      shape.kv_heads = 1, shape.group = group, shape.key_dim = 34, shape.value_dim = 40;
      if (cap == 2) shape.row = RowDType::kInt8;
      if (cap < 2) shape.slopes.assign(static_cast<size_t>(group), 0.25f);
      const RowShape bare = shape;
      shape.score_cap = cap;
      const Decode decode(shape, {333, 65}), without(bare, {333, 65});
      Cut chosen = cut();
      chosen.set.emplace();
      for (int position = 0; position < 65; position += 1 + position % 5) {
        chosen.set->push_back(position);
      }
      for (const Cut& plain : {cut(), chosen}) expect_all_cuts_equal(decode, plain);
      const Result capped = attention(decode.cache, decode.step, cut());
      EXPECT_FALSE(capped == attention(without.cache, without.step, cut()));
    }
  }
}

TEST_P(AttendTest, BatchAndThreadsDoNotMatter) {
  const std::vector<int> lengths = {1, 1100, 33, 640};
  RowShape shape;
  shape.kv_heads = 1, shape.group = 5;
  const Decode batch(shape, lengths);
  for (const bool partials : {false, true}) {
    Cut made = cut();
    made.partials = partials;
    Result one, two;
    tbb::task_arena(1).execute([&] { one = attention(batch.cache, batch.step, made); });
    tbb::task_arena(2).execute([&] { two = attention(batch.cache, batch.step, made); });
    EXPECT_TRUE(one == two);
    for (size_t s = 0; s < lengths.size(); ++s) {
      RowStep alone = batch.step;
      alone.descs = {batch.step.descs[s]};
      const Result result = attention(batch.cache, alone, made);
      const size_t width = 5 * 64;
      EXPECT_EQ(std::memcmp(result.out.data() + s * width, one.out.data() + s * width,
                            width * sizeof(float)),
                0);
    }
  }
}

TEST_P(AttendTest, InfiniteScoresAndValues) {
  // Keys of -inf against positive queries: whole tiles score -inf, then some tokens have weight.
  RowShape shape;
  shape.kv_heads = 1, shape.group = 2;
  const auto keys = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kKey && dim == 0 && position % 96 < 64) return -INFINITY;
    const float value = noise(kind, sequence, layer, position, head, dim);
    return kind == InputKind::kQuery && dim == 0 ? 1.0f : value;
  };
  expect_all_cuts_equal(Decode(shape, {300}, keys), cut());
  // Every score is -inf: all weights are 0, and no output is NaN.
  const Decode nothing(shape, {40}, keys);
  const Result empty = attention(nothing.cache, nothing.step, cut());
  for (const float value : empty.out) EXPECT_EQ(value, 0);
  for (const float value : empty.lse) EXPECT_EQ(value, -INFINITY);
  // An infinite value affects its own dimension only.
  const auto values = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kValue && dim == 3 && position == 50) return INFINITY;
    return noise(kind, sequence, layer, position, head, dim);
  };
  const Decode infinite(shape, {100}, values);
  const Result result = attention(infinite.cache, infinite.step, cut());
  for (size_t i = 0; i < result.out.size(); ++i) {
    EXPECT_EQ(std::isinf(result.out[i]), i % 64 == 3) << i;
  }
}

// An infinite score becomes the cap; a NaN stays NaN.
TEST_P(AttendTest, SoftCapOfInfiniteScores) {
  RowShape shape;
  shape.kv_heads = 1, shape.group = 2, shape.score_cap = 3;
  const auto keys = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kKey && dim == 0 && position % 5 == 0) return INFINITY;
    if (kind == InputKind::kKey && dim == 0 && position % 7 == 1) return -INFINITY;
    const float value = noise(kind, sequence, layer, position, head, dim);
    return kind == InputKind::kQuery && dim == 0 ? 1.0f : value;
  };
  for (const int length : {1, 40, 130}) expect_all_cuts_equal(Decode(shape, {length}, keys), cut());
  const auto nan = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kKey && position == 20) return NAN;
    return noise(kind, sequence, layer, position, head, dim);
  };
  const Decode spoilt(shape, {40}, nan);
  for (const float value : attention(spoilt.cache, spoilt.step, cut()).out) {
    EXPECT_TRUE(std::isnan(value));
  }
}

// In a coded vector one infinite or NaN element makes the whole vector NaN, and no other vector.
TEST_P(AttendTest, CodedRowsThatAreNotNumbers) {
  RowShape shape;
  shape.row = RowDType::kInt8, shape.kv_heads = 1, shape.group = 2;
  for (const InputKind spoilt : {InputKind::kKey, InputKind::kValue}) {
    const auto input = [spoilt](InputKind kind, int sequence, int layer, int position, int head,
                                int dim) {
      if (kind == spoilt && dim == 3 && position == 50) return -INFINITY;
      return noise(kind, sequence, layer, position, head, dim);
    };
    const Decode decode(shape, {100}, input);
    Cut without = cut();
    without.set = std::vector<int>{1, 49, 51, 99};
    for (const float value : attention(decode.cache, decode.step, without).out) {
      EXPECT_TRUE(std::isfinite(value));
    }
    const Result all = attention(decode.cache, decode.step, cut());
    for (const float value : all.out) EXPECT_TRUE(std::isnan(value));
    for (const float value : all.lse) EXPECT_EQ(std::isnan(value), spoilt == InputKind::kKey);
  }
}

// Weights as codes represent values down to 2^-100, floats smaller ones; a large value beside small
// ones.
TEST_P(AttendTest, CodedValuesOfAllSizes) {
  RowShape shape;
  shape.row = RowDType::kInt8, shape.kv_heads = 1, shape.group = 5;
  for (const float size : {0.0f, 0x1p-120f, 0x1p-101f, 0x1p-99f, 0x1p100f}) {
    for (const float of_one : {1.0f, 1000.0f}) {
      const auto input = [=](InputKind kind, int sequence, int layer, int position, int head,
                             int dim) {
        const float plain = noise(kind, sequence, layer, position, head, dim);
        if (kind != InputKind::kValue) return plain;
        return plain * size * (position == 40 ? of_one : 1.0f);
      };
      const Decode decode(shape, {70}, input);
      Cut slow = cut();
      slow.run = reference::attend;
      const Result truth = attention(decode.cache, decode.step, slow);
      const Result result = attention(decode.cache, decode.step, cut());
      for (size_t i = 0; i < truth.out.size(); ++i) {
        ASSERT_NEAR(result.out[i], truth.out[i], kCodedTolerance * size * of_one) << size;
      }
    }
  }
}

// Weights underflow and scores differ widely: the tiles' maxima are hundreds apart.
TEST_P(AttendTest, FarApartScores) {
  RowShape shape;
  shape.kv_heads = 1, shape.row = DType::kF32;
  const auto input = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kQuery) return dim == 0 ? 8.0f : 0.0f;
    if (kind == InputKind::kKey) return static_cast<float>(position * 7 % 300);
    return noise(kind, sequence, layer, position, head, dim);
  };
  const Decode decode(shape, {400}, input);
  Cut reference;
  const Result truth = attention(decode.cache, decode.step, reference);
  const Result result = attention(decode.cache, decode.step, cut());
  for (size_t i = 0; i < truth.out.size(); ++i) {
    ASSERT_NEAR(result.out[i], truth.out[i], kTolerance);
  }
}

TEST_P(AttendTest, PrefillSequencesAreLeftAlone) {
  Decode decode(RowShape(), {40, 50});
  decode.step.descs[0].mode = StepMode::kPrefill;
  const Result result = attention(decode.cache, decode.step, cut());
  EXPECT_EQ(result.out[0], -77);
  EXPECT_NE(result.out[4 * 64], -77);
}

INSTANTIATE_TEST_SUITE_P(Targets, AttendTest, ::testing::ValuesIn(cpu::supported_targets()),
                         [](const auto& test) { return std::string(target_name(test.param)); });

}  // namespace
}  // namespace fasa
