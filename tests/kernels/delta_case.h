// Sequences of a layer with linear attention in steps, for tests of its kernels: beside the scalar
// oracle, and in parts. On the processor, interpreted, and on a GPU. `run` takes a call and returns
// when its kernels have finished.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "kernels/calls.h"
#include "tests/support/reference/delta_net.h"

namespace fasa::delta_case {

using RunCall = std::function<void(const LinearCall&)>;

// Sums of f32 in other orders than the oracle's, which are of doubles.
inline constexpr double kBound = 2e-5;

// Tokens of one step.
struct Chunk {
  int64_t tokens;
  bool decodes = false;
  int64_t drafts = 0;  // the last tokens
  int64_t kept = -1;   // tokens that stay; -1: all
};

inline LinearShape shape_of(int key_heads, int value_heads, int key_dim, int value_dim, int taps,
                            DType dtype = DType::kF32) {
  return {.layers = 2,
          .key_heads = key_heads,
          .value_heads = value_heads,
          .key_dim = key_dim,
          .value_dim = value_dim,
          .taps = taps,
          .dtype = dtype};
}
inline LinearShape by_turns(LinearShape shape) {
  shape.heads_by_turns = true;
  return shape;
}
inline LinearShape in_bf16(LinearShape shape) {
  shape.dtype = DType::kBF16;
  return shape;
}

inline const LinearShape kShapes[] = {shape_of(3, 6, 10, 14, 4), by_turns(shape_of(2, 6, 12, 8, 3)),
                                      shape_of(1, 1, 7, 33, 1), shape_of(1, 2, 128, 128, 4),
                                      shape_of(5, 5, 16, 80, 8)};

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

// One layer (the second of two) of one sequence.
class Sequence {
 public:
  // `inputs` must outlive it.
  explicit Sequence(const Inputs& inputs) : inputs_(inputs), layout_(inputs.shape) {
    // Memory that nobody has cleared.
    state_.assign(static_cast<size_t>(layout_.bytes() / 4), 0x7f7f7f7f);
    saved_.assign(static_cast<size_t>(2 * layout_.cut_bytes() / 4), 0);
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  void step(const RunCall& run, const Chunk& chunk, int64_t save_at = 0);

  const std::vector<float>& out() const { return out_; }
  // The layer's state where no block is open.
  std::vector<std::byte> cut() const { return bytes(state_, layout_.layer_bytes()); }
  std::vector<std::byte> saved() const { return bytes(saved_, layout_.cut_bytes()); }

 private:
  friend class Step;
  std::vector<std::byte> bytes(const std::vector<uint32_t>& words, int64_t from) const {
    const auto* const at = reinterpret_cast<const std::byte*>(words.data()) + from;
    return {at, at + layout_.cut_bytes()};
  }
  LinearPart begin(const Chunk& chunk, int64_t first, int64_t save_at) {
    auto* const saved = reinterpret_cast<std::byte*>(saved_.data());
    return {.first = first,
            .tokens = chunk.tokens,
            .decodes = chunk.decodes,
            .position = position_,
            .open = open_,
            .waiting = waiting_,
            .drafts = chunk.drafts,
            .state = reinterpret_cast<std::byte*>(state_.data()),
            .saved = save_at > 0 ? saved : nullptr,
            .saved_at = save_at};
  }
  void end(const Chunk& chunk) {
    const int64_t kept = chunk.kept < 0 ? chunk.tokens : chunk.kept;
    const int64_t end = position_ + kept;
    waiting_ = static_cast<int>(chunk.drafts - (chunk.tokens - kept));
    out_.resize(static_cast<size_t>(end * inputs_.shape.value_width()));
    const int64_t cut = end / kLinearBlock * kLinearBlock;
    const int64_t begin = position_ - open_;
    open_ = chunk.decodes ? 0 : static_cast<int>(end - std::max(cut, begin));
    position_ = end;
  }

  const Inputs& inputs_;
  LinearLayout layout_;
  int64_t position_ = 0;
  int open_ = 0, waiting_ = 0;
  std::vector<uint32_t> state_, saved_;
  std::vector<float> out_;
};

// One step of some sequences of one layer.
class Step {
 public:
  void add(Sequence& sequence, const Chunk& chunk, int64_t save_at = 0) {
    parts_.push_back(sequence.begin(chunk, rows_, save_at));
    taken_.emplace_back(&sequence, chunk);
    const Inputs& inputs = sequence.inputs_;
    const auto append = [&](const std::vector<float>& from, int64_t width, int64_t row,
                            std::vector<float>* to) {
      const auto begin = from.begin() + row * width;
      to->insert(to->end(), begin, begin + width);
    };
    for (int64_t row = sequence.position_; row < sequence.position_ + chunk.tokens; ++row) {
      append(inputs.x, inputs.shape.channels(), row, &xz_);
      append(inputs.z, inputs.shape.value_width(), row, &xz_);
      append(inputs.gates, 2 * inputs.shape.value_heads, row, &gates_);
    }
    rows_ += chunk.tokens;
  }

  void run(const RunCall& run) {
    const Inputs& inputs = taken_.front().first->inputs_;
    const LinearShape& shape = inputs.shape;
    const LinearLayout& layout = taken_.front().first->layout_;
    const int64_t stride = shape.channels() + shape.value_width();
    std::vector<float> y(static_cast<size_t>(rows_ * shape.channels()) + 1);
    std::vector<float> out(static_cast<size_t>(rows_ * shape.value_width()) + 1);
    run(ConvolveParams{.layout = &layout,
                       .layer = 1,
                       .parts = parts_,
                       .launch = LinearLaunch::of(parts_),
                       .x = xz_.data(),
                       .x_stride = stride,
                       .weights = inputs.weights.taps.data(),
                       .y = y.data()});
    run(DeltaNetParams{.layout = &layout,
                       .layer = 1,
                       .parts = parts_,
                       .launch = LinearLaunch::of(parts_),
                       .y = y.data(),
                       .gates = gates_.data(),
                       .factor = inputs.weights.factor.data(),
                       .bias = inputs.weights.bias.data(),
                       .z = xz_.data() + shape.channels(),
                       .z_stride = stride,
                       .norm = inputs.weights.norm.data(),
                       .eps = inputs.weights.eps,
                       .o = xz_.data(),
                       .out = out.data()});
    int64_t at = 0;
    for (const auto& [sequence, chunk] : taken_) {
      for (int64_t i = 0; i < chunk.tokens * shape.value_width(); ++i) {
        sequence->out_.push_back(load_element(shape.dtype, out.data(), at++));
      }
      sequence->end(chunk);
    }
  }

 private:
  int64_t rows_ = 0;
  std::vector<LinearPart> parts_;
  std::vector<std::pair<Sequence*, Chunk>> taken_;
  std::vector<float> xz_, gates_;  // xz: [rows, channels + value_width]
};

inline void Sequence::step(const RunCall& run, const Chunk& chunk, int64_t save_at) {
  Step step;
  step.add(*this, chunk, save_at);
  step.run(run);
}

inline Result run_all(const RunCall& run, const Inputs& inputs, const std::vector<Chunk>& chunks) {
  Sequence sequence(inputs);
  for (const Chunk& chunk : chunks) sequence.step(run, chunk);
  return {sequence.out(), sequence.cut()};
}

// The largest difference to the oracle, relative to the largest output.
inline double error_of(const Inputs& inputs, const std::vector<float>& out) {
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

inline void expect_the_oracle(const RunCall& run, const LinearShape& shape) {
  const Inputs inputs(shape, 150);
  EXPECT_LT(error_of(inputs, run_all(run, inputs, {{150}}).out), kBound);
  EXPECT_LT(error_of(inputs, run_all(run, inputs, {{150, true}}).out), kBound);
  EXPECT_LT(error_of(inputs, run_all(run, inputs, {{70}, {3, true}, {77}}).out), kBound);
}

inline void expect_one_token(const RunCall& run) {
  const Inputs inputs(kShapes[0], 1);
  EXPECT_LT(error_of(inputs, run_all(run, inputs, {{1}}).out), kBound);
  EXPECT_LT(error_of(inputs, run_all(run, inputs, {{1, true}}).out), kBound);
}

inline void expect_nothing_of_no_tokens(const RunCall& run) {
  const Inputs inputs(kShapes[0], 9);
  EXPECT_EQ(run_all(run, inputs, {{5}, {0}, {4}}).out, run_all(run, inputs, {{9}}).out);
}

// A key or query of zeros has no direction.
inline void expect_zeros_of_zeros(const RunCall& run) {
  const Inputs inputs(kShapes[0], 80, 0);
  for (const float value : run_all(run, inputs, {{75}, {5, true}}).out) EXPECT_EQ(value, 0.0f);
}

inline void expect_same_bits_in_chunks(const RunCall& run, const LinearShape& shape) {
  const Inputs inputs(shape, 200);
  const Result whole = run_all(run, inputs, {{128}, {72}});
  for (const std::vector<Chunk>& chunks : {std::vector<Chunk>{{200}},
                                           {{1}, {62}, {1}, {1}, {135}},
                                           {{63}, {137}},
                                           {{64}, {136}},
                                           {{65}, {60}, {75}},
                                           {{190}, {10}},
                                           {{3}, {7}, {17}, {40}, {2}, {131}}}) {
    const Result parts = run_all(run, inputs, chunks);
    EXPECT_EQ(parts.out, whole.out);
    EXPECT_EQ(parts.cut, whole.cut);
  }
}

inline void expect_decoded_one_by_one(const RunCall& run) {
  const Inputs inputs(kShapes[1], 140);
  const Result apart = run_all(
      run, inputs, {{50}, {1, true}, {1, true}, {1, true}, {30}, {40}, {1, true}, {1, true}, {14}});
  const Result together = run_all(run, inputs, {{20}, {30}, {3, true}, {70}, {2, true}, {14}});
  EXPECT_EQ(apart.out, together.out);
  EXPECT_EQ(apart.cut, together.cut);
  EXPECT_NE(apart.out, run_all(run, inputs, {{140}}).out);
}

// The dropped tokens are those that come again in the next step.
inline void expect_no_trace_of_drafts(const RunCall& run, const LinearShape& shape) {
  const Inputs inputs(shape, 120);
  std::vector<Chunk> plain{{20}}, drafted{{20}, {1, true}};
  plain.insert(plain.end(), 70, Chunk{1, true});
  std::mt19937 random(3);
  for (int64_t at = 21; at < 90;) {
    const auto tokens = static_cast<int64_t>(1 + random() % (kMaxWaiting + 1));
    const auto kept = std::min(90 - at, static_cast<int64_t>(1 + random() % tokens));
    drafted.push_back({tokens, true, tokens - 1, kept});
    at += kept;
  }
  for (const std::vector<Chunk>& last :
       {std::vector<Chunk>{{30}}, {{5, true}, {25}}, {{30, true}}}) {
    std::vector<Chunk> expected = plain, given = drafted;
    expected.insert(expected.end(), last.begin(), last.end());
    given.push_back({8, true, 7, 2});
    expected.insert(expected.end() - std::ssize(last), 2, Chunk{1, true});
    given.insert(given.end(), last.begin(), last.end());
    given.back().tokens -= 2, expected.back().tokens -= 2;
    const Result parts = run_all(run, inputs, given), apart = run_all(run, inputs, expected);
    EXPECT_EQ(parts.out, apart.out);
    EXPECT_EQ(parts.cut, apart.cut);
  }
}

inline void expect_saved_at_a_cut(const RunCall& run) {
  const Inputs inputs(kShapes[0], 200);
  for (const int64_t before : {10, 64, 100}) {
    Sequence whole(inputs);
    whole.step(run, {before});
    whole.step(run, {200 - before}, 128);
    Sequence until(inputs);
    until.step(run, {128});
    EXPECT_EQ(whole.saved(), until.cut());
  }
}

// Prefilled and decoded sequences of different lengths in the same steps.
inline void expect_independent_sequences(const RunCall& run) {
  const Inputs inputs(kShapes[0], 100);
  const std::vector<std::vector<Chunk>> chunks = {
      {{70}, {1, true}, {1, true}}, {{5}, {80}, {1, true}}, {{1, true}, {1, true}, {33}}};
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (size_t i = 0; i < chunks.size(); ++i)
    sequences.push_back(std::make_unique<Sequence>(inputs));
  for (size_t at = 0; at < 3; ++at) {
    Step step;
    for (size_t i = 0; i < chunks.size(); ++i) step.add(*sequences[i], chunks[i][at]);
    step.run(run);
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Result alone = run_all(run, inputs, chunks[i]);
    EXPECT_EQ(sequences[i]->out(), alone.out) << i;
    EXPECT_EQ(sequences[i]->cut(), alone.cut) << i;
  }
}

inline void expect_gated(const RunCall& run) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<float> gate = {-3, 0, 0.5f, 100, -100, 2};
    std::vector<float> x(gate.size());
    for (int64_t i = 0; i < 6; ++i) store_element(dtype, x.data(), i, 2);
    run(GateParams{.tokens = 2, .size = 3, .gate = gate.data(), .dtype = dtype, .x = x.data()});
    for (int64_t i = 0; i < 6; ++i) {
      const float expected = 2 / (1 + std::exp(-gate[static_cast<size_t>(i)]));
      EXPECT_NEAR(load_element(dtype, x.data(), i), expected, dtype == DType::kF32 ? 1e-6 : 1e-2);
    }
  }
}

}  // namespace fasa::delta_case
