// The bodies of prefill attention (kernels/cuda/prefill_inl.h): against the f64 reference, and bit
// for bit equal across chunks, waves of pages and placements.
#include "kernels/cuda/prefill_inl.h"

#include "tests/kernels/prefill_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

using namespace prefill_case;

class PrefillBody : public ::testing::Test {
 protected:
  explicit PrefillBody(const SimtRun& run = {SimtInterpreter::Order::kRandom, 3})
      : interpreter_(run.order, run.seed) {}
  Ways ways() {
    Ways made;
    made.run = [this](const PrefillParams& params) {
      cuda::start(params, SimtLauncher(interpreter_));
    };
    return made;
  }
  void expect_near_reference(const RowShape& shape, int tokens, int window = 0) {
    Ways fast = ways();
    Ways slow;
    fast.window = slow.window = window;
    expect_near(prefill(shape, tokens, fast), prefill(shape, tokens, slow));
  }
  SimtInterpreter interpreter_;
};

class PrefillBodyInOrders : public PrefillBody, public ::testing::WithParamInterface<SimtRun> {
 protected:
  PrefillBodyInOrders() : PrefillBody(GetParam()) {}
};

TEST_P(PrefillBodyInOrders, Lengths) {
  for (const int tokens : {1, 31, 65}) {
    SCOPED_TRACE(tokens);
    RowShape shape;
    shape.kv_heads = 1;
    expect_near_reference(shape, tokens);
  }
}

struct Shape {
  int group, key_dim, value_dim;
};

TEST_F(PrefillBody, Shapes) {
  for (const Shape& of : {Shape{1, 2, 2}, {3, 33, 7}, {4, 128, 128}, {16, 34, 70}, {33, 8, 6}}) {
    SCOPED_TRACE(::testing::Message() << of.group << " " << of.key_dim << " " << of.value_dim);
    RowShape shape;
    shape.kv_heads = 1;
    shape.group = of.group, shape.key_dim = of.key_dim, shape.value_dim = of.value_dim;
    shape.slices = of.key_dim % 2 == 0;
    expect_near_reference(shape, 13);
  }
}

// Shapes for tensor cores, on a GPU without suitable ones.
TEST_F(PrefillBody, OldGpus) {
  for (const RowDType row : {RowDType::kBF16, RowDType::kInt8}) {
    RowShape shape;
    shape.row = row;
    shape.kv_heads = 1, shape.group = 4, shape.key_dim = shape.value_dim = 128;
    Ways old;
    old.run = [this](const PrefillParams& params) {
      cuda::start(params, SimtLauncher(interpreter_, 2, 75));
    };
    expect_near(prefill(shape, 13, old), prefill(shape, 13, Ways{}));
  }
}

// Wide rows: a page is copied to shared memory in parts, and a block has fewer tokens.
TEST_F(PrefillBody, WideRows) {
  RowShape shape;
  shape.kv_heads = 1, shape.key_dim = 256, shape.value_dim = 256, shape.row = DType::kF32;
  expect_near_reference(shape, 70);
  shape.group = 2, shape.key_dim = 512, shape.value_dim = 512, shape.row = DType::kBF16;
  expect_near_reference(shape, 70);
  expect_near_reference(shape, 1);
}

// Latent attention's shape: many query heads, wide keys. A block cannot hold a whole GQA group.
TEST_F(PrefillBody, WideRowsOfManyHeads) {
  for (const RowDType row : {RowDType::kF32, RowDType::kBF16, RowDType::kInt8}) {
    RowShape shape;
    shape.kv_heads = 1, shape.group = 7, shape.key_dim = 576, shape.value_dim = 512;
    shape.row = row;
    CacheLayout layout;
    layout.kv_heads = 1, layout.gqa_group = 7, layout.row = {row, 576, 512};
    if (!row.is_coded()) {  // coded rows are small enough for a whole group
      EXPECT_GT(cuda::PrefillShape::of(layout, 70).parts, 1);
    }
    expect_near_reference(shape, 70);
  }
}

TEST_F(PrefillBody, ElementTypes) {
  for (const RowDType row : kRowDTypes) {
    for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
      RowShape shape;
      shape.kv_heads = 1;
      shape.row = row, shape.input = input, shape.key_dim = 40;
      shape.value_dim = row.is_coded() ? 36 : 24;
      expect_near_reference(shape, 40);
    }
  }
}

TEST_F(PrefillBody, CodedShapes) {
  for (const auto& [key_dim, value_dim] : {std::pair{32, 32}, {35, 33}, {34, 70}, {256, 256}}) {
    SCOPED_TRACE(::testing::Message() << key_dim << " " << value_dim);
    RowShape shape;
    shape.row = RowDType::kInt8, shape.kv_heads = 1, shape.slices = false;
    shape.key_dim = key_dim, shape.value_dim = value_dim;
    expect_near_reference(shape, 70);
  }
}

TEST_P(PrefillBodyInOrders, Windows) {
  for (const int window : {1, 64, 90}) {
    SCOPED_TRACE(window);
    RowShape shape;
    shape.kv_heads = 1, shape.key_dim = 8, shape.value_dim = 6;
    expect_near_reference(shape, 130, window);
  }
}

std::vector<float> falling_slopes(int heads) {
  std::vector<float> slopes;
  for (int head = 0; head < heads; ++head) {
    slopes.push_back(std::exp2(-static_cast<float>(head % 12)));
  }
  return slopes;
}

struct CutWay {
  int chunk, wave_pages;
  bool on_device;
};

TEST_P(PrefillBodyInOrders, CutsDoNotMatter) {
  constexpr int kTokens = 135;
  for (const int window : {0, 90}) {
    RowShape shape;
    shape.kv_heads = 1, shape.key_dim = 8, shape.value_dim = 6;
    if (window > 0) shape.slopes = falling_slopes(shape.group);
    Ways whole = ways();
    whole.window = window;
    const std::vector<float> truth = prefill(shape, kTokens, whole);
    for (const CutWay& way : {CutWay{50, 1, false}, {64, 0, true}, {100, 0, false}}) {
      Ways other = whole;
      other.chunk = way.chunk;
      other.wave_pages = way.wave_pages;
      shape.on_device = way.on_device;
      other.copied = !way.on_device;
      EXPECT_TRUE(same_bits(prefill(shape, kTokens, other), truth))
          << "window " << window << ", chunk " << way.chunk;
    }
  }
}

TEST_F(PrefillBody, Alibi) {
  for (const int group : {1, 3, 33}) {
    for (const int window : {0, 70}) {
      RowShape shape;
      shape.group = group, shape.key_dim = 34, shape.value_dim = 20;
      shape.slopes = falling_slopes(2 * group);
      expect_near_reference(shape, group == 33 ? 70 : 150, window);
    }
  }
}

TEST_F(PrefillBody, SoftCap) {
  for (const float cap : {0.3f, 2.0f, 1000.0f}) {
    RowShape shape;
    shape.kv_heads = 1, shape.group = 3, shape.key_dim = 34, shape.value_dim = 20;
    shape.score_cap = cap;
    expect_near_reference(shape, 130, cap < 2 ? 70 : 0);
  }
}

// A value that a query does not see does not affect it, even if infinite.
TEST_P(PrefillBodyInOrders, LaterTokensAreNotSeen) {
  const auto input = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kValue && position == 20) return INFINITY;
    if (kind == InputKind::kKey && position == 30) return NAN;
    return noise(kind, sequence, layer, position, head, dim);
  };
  for (const RowDType row : {RowDType::kBF16, RowDType::kInt8}) {
    RowShape shape;
    shape.row = row;
    shape.kv_heads = 1, shape.group = 2, shape.key_dim = 32, shape.value_dim = 32;
    const std::vector<float> result = prefill(shape, 40, ways(), input);
    const std::vector<float> expected = prefill(shape, 20, ways());
    EXPECT_TRUE(same_bits({result.begin(), result.begin() + static_cast<int64_t>(expected.size())},
                          expected));
    EXPECT_TRUE(std::isnan(result.back()));
  }
}

// Rows that tensor cores process (kernels/cuda/prefill_tile_inl.h).
RowShape tile_shape(int group, int dim, RowDType row, DType input) {
  RowShape shape;
  shape.kv_heads = 1, shape.group = group, shape.key_dim = shape.value_dim = dim;
  shape.row = row, shape.input = input;
  return shape;
}

TEST_F(PrefillBody, Tiles) {
  for (const RowDType row : {RowDType::kF16, RowDType::kBF16, RowDType::kInt8}) {
    for (const DType input : {DType::kF32, row.is_coded() ? DType::kBF16 : row.elements()}) {
      expect_near_reference(tile_shape(4, 128, row, input), 70);
      expect_near_reference(tile_shape(3, 64, row, input), 45);
    }
  }
  expect_near_reference(tile_shape(1, 64, DType::kBF16, DType::kBF16), 130);
  expect_near_reference(tile_shape(64, 64, DType::kBF16, DType::kF16), 3);
}

// Queries, rows and outputs of one type: weights are rounded to it, each by at most 2^-9 (bf16) or
// 2^-12 (f16) of itself, and so are outputs, which lie in (-1, 1).
TEST_F(PrefillBody, TilesOfOneType) {
  for (const int dim : {64, 80, 96, 128, 256}) {
    for (const RowDType row : {RowDType::kF16, RowDType::kBF16, RowDType::kInt8}) {
      SCOPED_TRACE(::testing::Message() << dim << " " << static_cast<int>(row));
      const DType own = row.is_coded() ? DType::kBF16 : row.elements();
      RowShape shape = tile_shape(4, dim, row, own);
      if (dim == 64) shape.slopes = falling_slopes(4);
      Ways fast = ways();
      fast.out = own;
      fast.window = dim == 96 ? 70 : 0;
      Ways slow;
      slow.window = fast.window;
      const std::vector<float> result = prefill(shape, 97, fast);
      const float rounding = own == DType::kBF16 ? 0x1p-9f : 0x1p-12f;
      expect_near(result, prefill(shape, 97, slow), kTolerance + 2 * rounding);
      Ways cut = fast;
      cut.chunk = 50, cut.wave_pages = 1;
      EXPECT_TRUE(same_bits(prefill(shape, 97, cut), result));
    }
  }
}

// Widths that are no power of two, and a row whose keys and values share their memory.
TEST_F(PrefillBody, TilesOfOtherWidths) {
  for (const int dim : {80, 96, 256}) {
    SCOPED_TRACE(dim);
    for (const RowDType row : {RowDType::kF16, RowDType::kBF16, RowDType::kInt8}) {
      const DType own = row.is_coded() ? DType::kBF16 : row.elements();
      expect_near_reference(tile_shape(3, dim, row, DType::kF32), 67);
      expect_near_reference(tile_shape(2, dim, row, own), 97, 70);
    }
    RowShape shape = tile_shape(5, dim, DType::kBF16, DType::kF32);
    shape.kv_heads = 2;
    shape.slopes = falling_slopes(10);
    expect_near_reference(shape, 71, 50);
    shape.score_cap = 2;
    expect_near_reference(shape, 71);
  }
}

TEST(PrefillTiles, LayoutsThatTakeThem) {
  CacheLayout layout;
  layout.kv_heads = 1, layout.gqa_group = 4;
  const auto takes = [&](RowDType row, int dim, int capability) {
    layout.row = {row, dim, dim};
    return cuda::takes_prefill_tiles(layout, capability);
  };
  for (const int dim : {64, 80, 96, 128, 256}) {
    for (const RowDType row : {RowDType::kF16, RowDType::kBF16, RowDType::kInt8}) {
      EXPECT_TRUE(takes(row, dim, 80)) << dim;
      EXPECT_EQ(takes(row, dim, 75), row == RowDType::kF16) << dim;
    }
    EXPECT_FALSE(takes(DType::kF32, dim, 80)) << dim;
  }
  for (const int dim : {16, 72, 112, 192, 512}) EXPECT_FALSE(takes(DType::kF16, dim, 80)) << dim;
  layout.row = {DType::kBF16, 256, 128};
  EXPECT_FALSE(cuda::takes_prefill_tiles(layout, 80));
  layout.row = {DType::kBF16, 256, 256}, layout.gqa_group = 65;
  EXPECT_FALSE(cuda::takes_prefill_tiles(layout, 80));
}

TEST_F(PrefillBody, TilesWithAlibi) {
  for (const int window : {0, 70}) {
    for (const int group : {1, 3}) {
      const RowDType row = group == 1 ? RowDType::kBF16 : RowDType::kInt8;
      RowShape shape = tile_shape(group, 64, row, DType::kF32);
      shape.kv_heads = 2;
      shape.slopes = falling_slopes(2 * group);
      expect_near_reference(shape, 150, window);
    }
  }
}

TEST_F(PrefillBody, TilesWithSoftCap) {
  for (const float cap : {0.3f, 2.0f, 1000.0f}) {
    for (const RowDType row : {RowDType::kBF16, RowDType::kInt8}) {
      RowShape shape = tile_shape(3, 64, row, DType::kF32);
      shape.score_cap = cap;
      if (cap == 2) shape.slopes = falling_slopes(3);
      expect_near_reference(shape, 130, cap < 2 ? 70 : 0);
    }
  }
}

TEST_P(PrefillBodyInOrders, TilesInWindows) {
  for (const int window : {1, 64, 90}) {
    SCOPED_TRACE(window);
    expect_near_reference(tile_shape(2, 64, DType::kBF16, DType::kBF16), 130, window);
    expect_near_reference(tile_shape(2, 64, RowDType::kInt8, DType::kBF16), 130, window);
  }
}

class PrefillTileCuts : public PrefillBodyInOrders {
 protected:
  void expect_same(int dim, int window);
};

void PrefillTileCuts::expect_same(int dim, int window) {
  const RowDType row = window > 0 ? RowDType::kInt8 : RowDType::kF16;
  RowShape shape = tile_shape(3, dim, row, DType::kF32);
  if (window > 0) shape.slopes = falling_slopes(3);
  Ways whole = ways();
  whole.window = window;
  const std::vector<float> truth = prefill(shape, 135, whole);
  for (const CutWay& way : {CutWay{50, 1, false}, {64, 0, true}, {100, 0, false}}) {
    Ways other = whole;
    other.chunk = way.chunk;
    other.wave_pages = way.wave_pages;
    shape.on_device = way.on_device;
    other.copied = !way.on_device;
    EXPECT_TRUE(same_bits(prefill(shape, 135, other), truth))
        << dim << ", window " << window << ", chunk " << way.chunk;
  }
}

TEST_P(PrefillTileCuts, DoNotMatter) {
  for (const int dim : {64, 80}) {
    for (const int window : {0, 90}) expect_same(dim, window);
  }
  expect_same(256, 90);
}

class PrefillTileWidths : public PrefillBody, public ::testing::WithParamInterface<int> {};

// Values that are not finite reach the queries that see them; later pages are unaffected.
TEST_P(PrefillTileWidths, Infinity) {
  constexpr int kTokens = 150;
  const int width = GetParam();
  const RowShape shape = tile_shape(2, width, DType::kBF16, DType::kBF16);
  const auto input = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kValue && position == 20 && dim % 5 == 3) return -INFINITY;
    if (kind == InputKind::kKey && position == 140) return NAN;
    return noise(kind, sequence, layer, position, head, dim);
  };
  const std::vector<float> result = prefill(shape, kTokens, ways(), input);
  const std::vector<float> clean = prefill(shape, kTokens, ways());
  const size_t of_token = clean.size() / kTokens;
  for (size_t i = 0; i < result.size(); ++i) {
    const size_t token = i / of_token, dim = i % (of_token / 2);
    if (token >= 140) {
      ASSERT_TRUE(std::isnan(result[i])) << token;
    } else if (token >= 20 && dim < static_cast<size_t>(width) && dim % 5 == 3) {
      ASSERT_EQ(result[i], -INFINITY) << token << " " << dim;
    } else {
      ASSERT_EQ(result[i], clean[i]) << token << " " << dim;
    }
  }
}

// The same where weights are rounded.
TEST_P(PrefillTileWidths, InfinityOfOneType) {
  constexpr int kTokens = 100;
  const RowShape shape = tile_shape(2, GetParam(), DType::kBF16, DType::kBF16);
  Ways fast = ways();
  fast.out = DType::kBF16;
  const auto input = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kValue && position == 70 && dim == 9) return INFINITY;
    return noise(kind, sequence, layer, position, head, dim);
  };
  const std::vector<float> result = prefill(shape, kTokens, fast, input);
  const std::vector<float> clean = prefill(shape, kTokens, fast);
  const size_t of_head = clean.size() / kTokens / 2;
  for (size_t i = 0; i < result.size(); ++i) {
    const bool sees = i / of_head / 2 >= 70 && i % of_head == 9;
    ASSERT_EQ(result[i], sees ? INFINITY : clean[i]) << i;
  }
}

// A coded value that is not finite is NaN for the queries that see it.
TEST_P(PrefillTileWidths, CodedInfinity) {
  constexpr int kTokens = 150;
  const int width = GetParam();
  const RowShape shape = tile_shape(2, width, RowDType::kInt8, DType::kBF16);
  const auto input = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kValue && position == 20 && dim == 3) return -INFINITY;
    return noise(kind, sequence, layer, position, head, dim);
  };
  const std::vector<float> result = prefill(shape, kTokens, ways(), input);
  const std::vector<float> clean = prefill(shape, kTokens, ways());
  const size_t of_token = clean.size() / kTokens;
  for (size_t i = 0; i < result.size(); ++i) {
    const size_t token = i / of_token, dim = i % (of_token / 2);
    if (token >= 20 && dim < static_cast<size_t>(width)) {
      ASSERT_TRUE(std::isnan(result[i])) << token << " " << dim;
    } else {
      ASSERT_EQ(result[i], clean[i]) << token << " " << dim;
    }
  }
}

// The sequences of a step, each with its own pages.
TEST_P(PrefillTileWidths, ABatchIsItsSequencesAlone) {
  for (const RowDType row : {RowDType(DType::kBF16), RowDType(RowDType::kInt8)}) {
    const RowShape shape = tile_shape(2, GetParam(), row, DType::kBF16);
    Ways chunked = ways();
    chunked.chunk = 50;
    const Prefill batch(shape, {9, 4, 5}, 130, chunked, noise);
    EXPECT_TRUE(same_bits(batch.of(1), prefill(shape, 130, chunked)));
    EXPECT_FALSE(same_bits(batch.of(0), batch.of(1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, PrefillTileWidths, ::testing::Values(64, 96, 256));
INSTANTIATE_TEST_SUITE_P(Orders, PrefillTileCuts, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });
INSTANTIATE_TEST_SUITE_P(Orders, PrefillBodyInOrders, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
