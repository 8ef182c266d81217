// Layers with linear attention: equal to the scalar oracle on every instruction set, and the same
// bits whatever the parts in which tokens arrive.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/model/linear_calls.h"
#include "kernels/reference/delta_net.h"

namespace fasa {
namespace {

using cpu::Target;

// Tokens of one step.
struct Chunk {
  int64_t tokens;
  bool decodes = false;
};

LinearShape shape_of(int key_heads, int value_heads, int key_dim, int value_dim, int taps,
                     DType dtype = DType::kF32) {
  return {.layers = 2,
          .key_heads = key_heads,
          .value_heads = value_heads,
          .key_dim = key_dim,
          .value_dim = value_dim,
          .taps = taps,
          .dtype = dtype};
}

// Random inputs of one sequence, and the weights of one layer.
struct Inputs {
  Inputs(const LinearShape& shape_in, int64_t tokens_in, float size = 1)
      : shape(shape_in), tokens(tokens_in) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto filled = [&](int64_t count, float scale) {
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = scale * normal(random);
      return values;
    };
    x = filled(tokens * shape.channels(), size);
    gates = filled(tokens * 2 * shape.value_heads, 1);
    z = filled(tokens * shape.value_width(), 1);
    weights.taps = filled(int64_t{shape.channels()} * shape.taps, 0.5f);
    weights.bias = filled(shape.value_heads, 0.3f);
    weights.norm = filled(shape.value_dim, 1);
    weights.factor = filled(shape.value_heads, 1);
    for (float& factor : weights.factor) factor = -std::exp(factor);
  }
  LinearShape shape;
  int64_t tokens;
  std::vector<float> x, gates, z;
  reference::DeltaNet::Weights weights;
};

struct Result {
  std::vector<float> out;      // [tokens, value_width]
  std::vector<std::byte> cut;  // the state at the last cut
};

// One layer (the second of two) of one sequence, in steps.
class Sequence {
 public:
  Sequence(const Inputs& inputs, Target target)
      : inputs_(inputs), layout_(inputs.shape), target_(target) {
    // Memory that nobody has cleared.
    state_.assign(static_cast<size_t>(layout_.bytes()), std::byte{0x7f});
    saved_.assign(static_cast<size_t>(2 * layout_.cut_bytes()), std::byte{0});
  }

  void step(const Chunk& chunk, int64_t save_at = 0) {
    const LinearShape& shape = inputs_.shape;
    const LinearPart parts[] = {{.tokens = chunk.tokens,
                                 .decodes = chunk.decodes,
                                 .position = position_,
                                 .open = open_,
                                 .state = state_.data(),
                                 .saved = save_at > 0 ? saved_.data() : nullptr,
                                 .saved_at = save_at}};
    const auto rows = static_cast<size_t>(chunk.tokens);
    std::vector<std::byte> y(rows * static_cast<size_t>(shape.channels()) * 4);
    std::vector<std::byte> out(rows * static_cast<size_t>(shape.value_width()) * 4);
    cpu::run_linear(ConvolveParams{.layout = &layout_,
                                   .layer = 1,
                                   .parts = parts,
                                   .x = inputs_.x.data() + position_ * shape.channels(),
                                   .x_stride = shape.channels(),
                                   .weights = inputs_.weights.taps.data(),
                                   .y = y.data()},
                    target_);
    cpu::run_linear(
        DeltaNetParams{.layout = &layout_,
                       .layer = 1,
                       .parts = parts,
                       .y = y.data(),
                       .gates = inputs_.gates.data() + position_ * 2 * shape.value_heads,
                       .factor = inputs_.weights.factor.data(),
                       .bias = inputs_.weights.bias.data(),
                       .z = inputs_.z.data() + position_ * shape.value_width(),
                       .z_stride = shape.value_width(),
                       .norm = inputs_.weights.norm.data(),
                       .eps = inputs_.weights.eps,
                       .out = out.data()},
        target_);
    for (int64_t i = 0; i < chunk.tokens * shape.value_width(); ++i) {
      out_.push_back(load_element(shape.dtype, out.data(), i));
    }
    const int64_t end = position_ + chunk.tokens;
    const int64_t cut = end / kLinearBlock * kLinearBlock;
    const int64_t begin = position_ - open_;
    open_ = chunk.decodes ? 0 : static_cast<int>(end - std::max(cut, begin));
    position_ = end;
  }
  const std::vector<float>& out() const { return out_; }
  // The layer's state where no block is open.
  std::vector<std::byte> cut() const {
    const auto at = state_.begin() + layout_.layer_bytes();
    return {at, at + layout_.cut_bytes()};
  }
  std::vector<std::byte> saved() const {
    const auto at = saved_.begin() + layout_.cut_bytes();
    return {at, at + layout_.cut_bytes()};
  }

 private:
  const Inputs& inputs_;
  LinearLayout layout_;
  Target target_;
  int64_t position_ = 0;
  int open_ = 0;
  std::vector<std::byte> state_, saved_;
  std::vector<float> out_;
};

Result run_all(const Inputs& inputs, const std::vector<Chunk>& chunks,
               Target target = cpu::active_target()) {
  Sequence sequence(inputs, target);
  for (const Chunk& chunk : chunks) sequence.step(chunk);
  return {sequence.out(), sequence.cut()};
}

// The largest difference to the oracle, relative to the largest output.
double error_of(const Inputs& inputs, const std::vector<float>& out) {
  reference::DeltaNet oracle(inputs.shape, inputs.weights);
  double worst = 0, largest = 0;
  for (int64_t token = 0; token < inputs.tokens; ++token) {
    const auto expected = oracle.next(inputs.x.data() + token * inputs.shape.channels(),
                                      inputs.gates.data() + token * 2 * inputs.shape.value_heads,
                                      inputs.z.data() + token * inputs.shape.value_width());
    for (size_t i = 0; i < expected.size(); ++i) {
      const double given = out[static_cast<size_t>(token) * expected.size() + i];
      if (std::isnan(given)) return INFINITY;
      worst = std::max(worst, std::abs(given - expected[i]));
      largest = std::max(largest, std::abs(expected[i]));
    }
  }
  return worst / largest;
}

LinearShape by_turns(LinearShape shape) {
  shape.heads_by_turns = true;
  return shape;
}

const LinearShape kShapes[] = {shape_of(3, 6, 10, 14, 4), by_turns(shape_of(2, 6, 12, 8, 3)),
                               shape_of(1, 1, 7, 33, 1), shape_of(2, 4, 128, 128, 4),
                               shape_of(5, 5, 16, 80, 8)};

TEST(DeltaNet, EqualsTheOracleOnEveryTarget) {
  for (const LinearShape& shape : kShapes) {
    const Inputs inputs(shape, 150);
    for (const Target target : cpu::supported_targets()) {
      SCOPED_TRACE(cpu::target_name(target));
      EXPECT_LT(error_of(inputs, run_all(inputs, {{150}}, target).out), 2e-5);
      EXPECT_LT(error_of(inputs, run_all(inputs, {{150, true}}, target).out), 2e-5);
      EXPECT_LT(error_of(inputs, run_all(inputs, {{70}, {3, true}, {77}}, target).out), 2e-5);
    }
  }
}

TEST(DeltaNet, OneToken) {
  const Inputs inputs(kShapes[0], 1);
  EXPECT_LT(error_of(inputs, run_all(inputs, {{1}}).out), 2e-5);
  EXPECT_LT(error_of(inputs, run_all(inputs, {{1, true}}).out), 2e-5);
}

TEST(DeltaNet, NoTokens) {
  const Inputs inputs(kShapes[0], 9);
  EXPECT_EQ(run_all(inputs, {{5}, {0}, {4}}).out, run_all(inputs, {{9}}).out);
}

// A key or query of zeros has no direction.
TEST(DeltaNet, InputsOfZeros) {
  const Inputs inputs(kShapes[0], 80, 0);
  for (const float value : run_all(inputs, {{75}, {5, true}}).out) EXPECT_EQ(value, 0.0f);
}

TEST(DeltaNet, SameBitsWhateverTheChunks) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    LinearShape shape = kShapes[0];
    shape.dtype = dtype;
    const Inputs inputs(shape, 200);
    for (const Target target : cpu::supported_targets()) {
      SCOPED_TRACE(cpu::target_name(target));
      const Result whole = run_all(inputs, {{128}, {72}}, target);
      for (const std::vector<Chunk>& chunks : {std::vector<Chunk>{{200}},
                                               {{1}, {62}, {1}, {1}, {135}},
                                               {{63}, {137}},
                                               {{64}, {136}},
                                               {{65}, {60}, {75}},
                                               {{190}, {10}},
                                               std::vector<Chunk>(200, Chunk{1})}) {
        const Result parts = run_all(inputs, chunks, target);
        EXPECT_EQ(parts.out, whole.out);
        EXPECT_EQ(parts.cut, whole.cut);
      }
    }
  }
}

TEST(DeltaNet, DecodedTokensAdvanceOneByOne) {
  const Inputs inputs(kShapes[1], 140);
  const Result apart = run_all(
      inputs, {{50}, {1, true}, {1, true}, {1, true}, {30}, {40}, {1, true}, {1, true}, {14}});
  const Result together = run_all(inputs, {{20}, {30}, {3, true}, {70}, {2, true}, {14}});
  EXPECT_EQ(apart.out, together.out);
  EXPECT_NE(apart.out, run_all(inputs, {{140}}).out);
}

TEST(DeltaNet, SavesTheStateAtACut) {
  const Inputs inputs(kShapes[0], 200);
  for (const int64_t before : {10, 64, 100}) {
    Sequence whole(inputs, cpu::active_target());
    whole.step({before});
    whole.step({200 - before}, 128);
    Sequence until(inputs, cpu::active_target());
    until.step({128});
    EXPECT_EQ(whole.saved(), until.cut());
  }
}

TEST(DeltaNet, AGateScalesByItsSigmoid) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<float> gate = {-3, 0, 0.5f, 100, -100, 2};
    std::vector<std::byte> x(gate.size() * 4);
    for (int64_t i = 0; i < 6; ++i) store_element(dtype, x.data(), i, 2);
    cpu::run_linear(
        GateParams{.tokens = 2, .size = 3, .gate = gate.data(), .dtype = dtype, .x = x.data()});
    for (int64_t i = 0; i < 6; ++i) {
      const float expected = 2 / (1 + std::exp(-gate[static_cast<size_t>(i)]));
      EXPECT_NEAR(load_element(dtype, x.data(), i), expected, dtype == DType::kF32 ? 1e-6 : 1e-2);
    }
  }
}

}  // namespace
}  // namespace fasa
