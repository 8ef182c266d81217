// The bodies of prefill attention (kernels/cuda/prefill_inl.h): against the f64 reference, and bit
// for bit against themselves over chunks, waves of pages and placements.
#include "kernels/cuda/prefill_inl.h"

#include "tests/kernels/prefill_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

using namespace prefill_case;

class PrefillBody : public testing::Test {
 protected:
  explicit PrefillBody(const SimtRun& run = {SimtInterpreter::Order::kRandom, 3})
      : interpreter_(run.order, run.seed) {}
  Ways ways() {
    Ways made;
    made.run = [this](const PrefillParams& params) {
      cuda::launch_prefill(params, SimtLauncher(interpreter_));
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

class PrefillBodyInOrders : public PrefillBody, public testing::WithParamInterface<SimtRun> {
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
    SCOPED_TRACE(testing::Message() << of.group << " " << of.key_dim << " " << of.value_dim);
    RowShape shape;
    shape.kv_heads = 1;
    shape.group = of.group, shape.key_dim = of.key_dim, shape.value_dim = of.value_dim;
    shape.slices = of.key_dim % 2 == 0;
    expect_near_reference(shape, 13);
  }
}

// Rows so wide that a page is staged in parts, and blocks hold fewer tokens.
TEST_F(PrefillBody, WideRows) {
  RowShape shape;
  shape.kv_heads = 1, shape.key_dim = 256, shape.value_dim = 256, shape.row = DType::kF32;
  expect_near_reference(shape, 70);
}

TEST_F(PrefillBody, ElementTypes) {
  for (const DType row : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
      RowShape shape;
      shape.kv_heads = 1;
      shape.row = row, shape.input = input, shape.key_dim = 40, shape.value_dim = 24;
      expect_near_reference(shape, 40);
    }
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

struct CutWay {
  int chunk, wave_pages;
  bool on_device;
};

TEST_P(PrefillBodyInOrders, CutsDoNotMatter) {
  constexpr int kTokens = 135;
  for (const int window : {0, 90}) {
    RowShape shape;
    shape.kv_heads = 1, shape.key_dim = 8, shape.value_dim = 6;
    Ways whole = ways();
    whole.window = window;
    const std::vector<float> truth = prefill(shape, kTokens, whole);
    for (const CutWay& way : {CutWay{50, 1, false}, {64, 0, true}, {100, 0, false}}) {
      Ways other = whole;
      other.chunk = way.chunk;
      other.wave_pages = way.wave_pages;
      shape.on_device = way.on_device;
      other.staged = !way.on_device;
      EXPECT_TRUE(same_bits(prefill(shape, kTokens, other), truth))
          << "window " << window << ", chunk " << way.chunk;
    }
  }
}

// A value that a query does not see, even an infinite one, is not part of it.
TEST_P(PrefillBodyInOrders, LaterTokensAreNotSeen) {
  RowShape shape;
  shape.kv_heads = 1, shape.group = 2, shape.key_dim = 16, shape.value_dim = 16;
  const auto input = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kValue && position == 20) return INFINITY;
    if (kind == InputKind::kKey && position == 30) return NAN;
    return noise(kind, sequence, layer, position, head, dim);
  };
  const std::vector<float> result = prefill(shape, 40, ways(), input);
  const std::vector<float> expected = prefill(shape, 20, ways());
  EXPECT_TRUE(same_bits({result.begin(), result.begin() + static_cast<int64_t>(expected.size())},
                        expected));
  EXPECT_TRUE(std::isnan(result.back()));
}

INSTANTIATE_TEST_SUITE_P(Orders, PrefillBodyInOrders, testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
