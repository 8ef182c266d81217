// Exact causal attention, on every target of this processor: against the f64 reference, and bit for
// bit equal across chunks, waves of pages, threads, batches and placements.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include "tests/kernels/prefill_case.h"

namespace fasa {
namespace {

using namespace prefill_case;

class PrefillTest : public ::testing::TestWithParam<cpu::Target> {
 protected:
  Ways ways() const {
    Ways made;
    made.run = [&of = cpu::row_bodies(GetParam())](const PrefillParams& params) {
      cpu::prefill_with(of, params);
    };
    return made;
  }
  void expect_near_reference(const RowShape& shape, int tokens, int window = 0) const {
    Ways fast = ways();
    Ways slow;
    fast.window = slow.window = window;
    expect_near(prefill(shape, tokens, fast), prefill(shape, tokens, slow));
  }
};

std::vector<float> falling_slopes(int heads) {
  std::vector<float> slopes;
  for (int head = 0; head < heads; ++head) slopes.push_back(std::exp2(-static_cast<float>(head)));
  return slopes;
}

// A later token's infinite value must not affect an earlier query, not even as 0 * inf, whichever
// chunk brought it; a score of -inf gives weight 0.
void expect_infinities_only_where_seen(const Ways& ways, DType queries) {
  RowShape shape;
  shape.kv_heads = 1, shape.input = queries;
  const auto input = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kValue && dim == 1 && position == 40) return INFINITY;
    if (kind == InputKind::kKey && dim == 0 && position % 3 == 1) return -INFINITY;
    if (kind == InputKind::kQuery && dim == 0) return 0.5f;
    return noise(kind, sequence, layer, position, head, dim);
  };
  for (const int window : {0, 30}) {
    Ways whole = ways;
    whole.window = window;
    const std::vector<float> result = prefill(shape, 150, whole, input);
    const size_t width = 65;
    for (size_t i = 0; i < result.size(); ++i) {
      const auto token = static_cast<int>(i / width / 2);
      const bool reached = i % width == 1 && token >= 40 && (window == 0 || token < 40 + window);
      // Position 40 is one of the keys of -inf: its weight is 0, and 0 * inf is NaN.
      EXPECT_EQ(std::isnan(result[i]), reached) << "token " << token << " element " << i % width;
    }
    for (const int chunk : {1, 7, 64}) {
      Ways other = whole;
      other.chunk = chunk;
      EXPECT_TRUE(same_bits(prefill(shape, 150, other, input), result)) << chunk;
    }
  }
}

TEST_P(PrefillTest, Lengths) {
  for (const int tokens : {1, 2, 31, 33, 63, 64, 65, 130, 200}) {
    SCOPED_TRACE(tokens);
    expect_near_reference(RowShape(), tokens);
  }
}

TEST_P(PrefillTest, Shapes) {
  for (const int group : {1, 3, 4, 7, 16}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{2, 2}, {64, 64}, {80, 80}, {128, 128}, {34, 70}, {512, 512}}) {
      SCOPED_TRACE(::testing::Message() << group << " " << key_dim << " " << value_dim);
      RowShape shape;
      shape.kv_heads = 1;
      shape.group = group, shape.key_dim = key_dim, shape.value_dim = value_dim;
      expect_near_reference(shape, 70);
    }
  }
}

// Queries and keys in bf16, whose products need no widening: dimensions that fill part of a
// register, whole registers, and an odd number, which has no pairs.
TEST_P(PrefillTest, QueriesInBf16) {
  for (const int group : {1, 3, 16}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{2, 2}, {33, 16}, {34, 70}, {80, 80}, {128, 128}, {192, 128}, {512, 512}}) {
      SCOPED_TRACE(::testing::Message() << group << " " << key_dim << " " << value_dim);
      RowShape shape;
      shape.input = DType::kBF16, shape.kv_heads = 1, shape.slices = key_dim % 2 == 0;
      shape.group = group, shape.key_dim = key_dim, shape.value_dim = value_dim;
      if (key_dim == 80) shape.slopes = falling_slopes(group), shape.score_cap = 2;
      expect_near_reference(shape, 90, key_dim == 34 ? 65 : 0);
    }
  }
}

// Outputs in bf16 allow weights in bf16: both are exact to 2^-9.
TEST_P(PrefillTest, OutputsInBf16) {
  for (const int group : {1, 3}) {
    RowShape shape;
    shape.input = DType::kBF16, shape.group = group;
    Ways fast = ways();
    fast.out = DType::kBF16;
    expect_near(prefill(shape, 200, fast), prefill(shape, 200, Ways()), 0.01f);
  }
}

TEST_P(PrefillTest, ElementTypes) {
  for (const RowDType row : kRowDTypes) {
    for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
      RowShape shape;
      shape.row = row, shape.input = input, shape.key_dim = 40;
      shape.value_dim = row.is_coded() ? 36 : 24;
      expect_near_reference(shape, 90);
    }
  }
}

TEST_P(PrefillTest, CodedShapes) {
  for (const int group : {1, 3, 16}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{32, 32}, {33, 47}, {64, 64}, {128, 128}, {81, 70}}) {
      SCOPED_TRACE(::testing::Message() << group << " " << key_dim << " " << value_dim);
      RowShape shape;
      shape.row = RowDType::kInt8, shape.kv_heads = 1;
      shape.group = group, shape.key_dim = key_dim, shape.value_dim = value_dim;
      expect_near_reference(shape, 70);
    }
  }
}

TEST_P(PrefillTest, Windows) {
  for (const int window : {1, 63, 64, 65, 100}) {
    SCOPED_TRACE(window);
    expect_near_reference(RowShape(), 190, window);
  }
}

TEST_P(PrefillTest, Alibi) {
  for (const int group : {1, 3, 7}) {
    for (const int window : {0, 65}) {
      SCOPED_TRACE(::testing::Message() << group << " " << window);
      RowShape shape;
      shape.group = group, shape.key_dim = 34, shape.value_dim = 20;
      shape.slopes = falling_slopes(2 * group);
      expect_near_reference(shape, 203, window);
    }
  }
}

TEST_P(PrefillTest, SoftCap) {
  for (const float cap : {0.3f, 2.0f, 1000.0f}) {
    for (const int window : {0, 65}) {
      SCOPED_TRACE(::testing::Message() << cap << " " << window);
      RowShape shape;
      shape.group = 3, shape.key_dim = 34, shape.value_dim = 20;
      if (window > 0) shape.slopes = falling_slopes(6);
      shape.score_cap = cap;
      expect_near_reference(shape, 203, window);
    }
  }
}

// Chunks, waves, copied pages and placement, with and without a window; with ALiBi, a soft cap and
// coded rows where the target has them.
TEST_P(PrefillTest, CutsDoNotMatter) {
  constexpr int kTokens = 530;
  for (const int window : {0, 90}) {
    RowShape shape;
    shape.key_dim = 48, shape.value_dim = 32;
    if (window == 0) shape.input = DType::kBF16;
    if (window > 0) shape.row = RowDType::kInt8;
    if (window > 0) shape.slopes = falling_slopes(4), shape.score_cap = 2;
    Ways whole = ways();
    whole.window = window;
    const std::vector<float> truth = prefill(shape, kTokens, whole);
    for (const int chunk : {1, 7, 64, 100, 512}) {
      for (const int wave : {0, 1, 3}) {
        for (const bool on_device : {true, false}) {
          // A token at a time is the slowest case and adds nothing in most combinations.
          if (chunk == 1 && (wave != 3 || on_device)) continue;
          Ways other = whole;
          other.chunk = chunk;
          other.wave_pages = wave;
          shape.on_device = on_device;
          shape.device_copies = !on_device && wave != 1;
          other.copied = !on_device && wave == 3;
          EXPECT_TRUE(same_bits(prefill(shape, kTokens, other), truth))
              << "chunk " << chunk << ", wave " << wave << ", device " << on_device;
        }
      }
    }
    shape.on_device = true;
    shape.device_copies = false;
  }
}

TEST_P(PrefillTest, BatchAndThreadsDoNotMatter) {
  for (const int group : {1, 6}) {
    RowShape shape;
    shape.group = group;
    if (group > 1) shape.input = DType::kBF16;
    Ways chunked = ways();
    chunked.chunk = 150;
    std::vector<float> one, two;
    tbb::task_arena(1).execute([&] { one = prefill(shape, 300, chunked); });
    tbb::task_arena(2).execute([&] { two = prefill(shape, 300, chunked); });
    EXPECT_TRUE(same_bits(one, two));
    const Prefill batch(shape, {9, 4, 5}, 300, chunked, noise);
    EXPECT_TRUE(same_bits(batch.of(1), one));
  }
}

TEST_P(PrefillTest, Infinities) {
  for (const DType queries : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(dtype_name(queries));
    expect_infinities_only_where_seen(ways(), queries);
  }
}

// A coded value that is not finite is NaN in all dimensions, for the queries that see it.
TEST_P(PrefillTest, CodedValuesThatAreNotNumbers) {
  RowShape shape;
  shape.row = RowDType::kInt8, shape.kv_heads = 1;
  const auto input = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kValue && dim == 1 && position == 40) return INFINITY;
    return noise(kind, sequence, layer, position, head, dim);
  };
  const std::vector<float> result = prefill(shape, 100, ways(), input);
  const size_t width = 65;
  for (size_t i = 0; i < result.size(); ++i) {
    const bool reached = i % width < 64 && i / width / 2 >= 40;
    EXPECT_EQ(std::isnan(result[i]), reached) << "token " << i / width / 2;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, PrefillTest, ::testing::ValuesIn(cpu::supported_targets()),
                         [](const auto& test) { return std::string(target_name(test.param)); });

}  // namespace
}  // namespace fasa
