// Exact causal attention, on every target of this processor: against the f64 reference, and bit for
// bit against itself over chunks, waves of pages, threads, batches and placements.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/row_case.h"

namespace fasa {
namespace {

struct Ways {
  const cpu::RowBodies* bodies = nullptr;  // null: the reference
  int window = 0;
  int chunk = 1 << 20;
  int wave_pages = 0;   // 0: all pages in one call
  bool staged = false;  // older pages copied beside each other (host placement)
};

// Outputs and log-sum-exps of every token, for all sequences of equal length, prefilled in chunks.
class Prefill {
 public:
  Prefill(const RowShape& shape, const std::vector<int>& ids, int tokens, const Ways& ways,
          const RowCase::InputOf& input)
      : shape_(shape), ways_(ways), tokens_(tokens), cache_(shape, ids, tokens) {
    cache_.set_input(input);
    for (size_t s = 0; s < ids.size(); ++s) out_.emplace_back();
    while (cache_.sequence(0).length < tokens) run_chunk(static_cast<int>(ids.size()));
  }
  // [token][query head][value_dim + 1], the last the log-sum-exp.
  const std::vector<float>& of(int sequence) const { return out_[static_cast<size_t>(sequence)]; }

 private:
  void run_chunk(int count) {
    std::vector<Advance> advances;
    for (int s = 0; s < count; ++s) {
      advances.push_back({s, std::min(ways_.chunk, tokens_ - cache_.sequence(s).length)});
    }
    RowStep step = cache_.begin(advances);
    cache_.fill(step, 0);
    cpu::append(cache_.append_params(step, 0));
    attend(step);
    if (!shape_.on_device) cpu::write_back({cache_.params(step, 0)});
    cache_.commit(advances);
  }

  void attend(const RowStep& step) {
    const CacheLayout& layout = cache_.layout();
    const int value_dim = layout.row.value_dim;
    const auto heads = static_cast<size_t>(step.tokens * layout.query_heads());
    std::vector<float> out(heads * static_cast<size_t>(value_dim), -77), lse(heads, -77);
    std::vector<float> state(heads * static_cast<size_t>(value_dim + 2), NAN);
    PrefillParams params;
    params.step = cache_.params(step, 0);
    params.q = cache_.query_view(step);
    params.scale = 1 / std::sqrt(static_cast<float>(layout.row.key_dim));
    params.window = ways_.window;
    params.out =
        TensorView::dense(out.data(), DType::kF32, step.tokens, layout.query_heads(), value_dim);
    params.lse = lse.data();
    const int pages = (step.descs[0].end() - 1) / kPageTokens + 1;
    const int wave = ways_.wave_pages > 0 ? ways_.wave_pages : pages;
    std::vector<std::byte> copies;
    for (int begin = 0; begin < pages; begin += wave) {
      params.begin_page = begin;
      params.end_page = begin + wave;
      params.first_wave = begin == 0;
      params.last_wave = begin + wave >= pages;
      params.state = wave < pages ? state.data() : nullptr;
      if (ways_.staged) params.pages = stage(step, begin, wave, copies);
      if (ways_.bodies != nullptr) {
        cpu::prefill_with(*ways_.bodies, params);
      } else {
        reference::prefill(params);
      }
    }
    collect(step, out, lse);
  }

  StagedPages stage(const RowStep& step, int begin, int wave, std::vector<std::byte>& copies) {
    const CacheLayout& layout = cache_.layout();
    const auto bytes = static_cast<size_t>(layout.row_layer_bytes());
    copies.assign(step.descs.size() * static_cast<size_t>(wave) * bytes, std::byte{0xEE});
    for (size_t s = 0; s < step.descs.size(); ++s) {
      for (int page = 0; page < wave; ++page) {
        if ((begin + page) * kPageTokens >= step.descs[s].start) continue;
        std::memcpy(
            copies.data() + (s * static_cast<size_t>(wave) + static_cast<size_t>(page)) * bytes,
            step.descs[s].row_blocks[begin + page], bytes);
      }
    }
    return {copies.data(), begin, wave};
  }

  void collect(const RowStep& step, const std::vector<float>& out, const std::vector<float>& lse) {
    const auto value_dim = static_cast<size_t>(cache_.layout().row.value_dim);
    const auto heads = static_cast<size_t>(cache_.layout().query_heads());
    for (size_t s = 0; s < step.descs.size(); ++s) {
      const size_t first = static_cast<size_t>(step.descs[s].first_token) * heads;
      for (size_t i = 0; i < static_cast<size_t>(step.descs[s].tokens) * heads; ++i) {
        const float* values = out.data() + (first + i) * value_dim;
        out_[s].insert(out_[s].end(), values, values + value_dim);
        out_[s].push_back(lse[first + i]);
      }
    }
  }

  RowShape shape_;
  Ways ways_;
  int tokens_;
  RowCase cache_;
  std::vector<std::vector<float>> out_;
};

std::vector<float> prefill(const RowShape& shape, int tokens, const Ways& ways,
                           const RowCase::InputOf& input = noise) {
  return Prefill(shape, {4}, tokens, ways, input).of(0);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The reasoning of attend_test.cc's bound holds here too.
constexpr float kTolerance = 3e-5f;

void expect_near(const std::vector<float>& result, const std::vector<float>& truth) {
  ASSERT_EQ(result.size(), truth.size());
  for (size_t i = 0; i < truth.size(); ++i) ASSERT_NEAR(result[i], truth[i], kTolerance) << i;
}

class PrefillTest : public testing::TestWithParam<cpu::Target> {
 protected:
  Ways ways() const {
    Ways made;
    made.bodies = &cpu::row_bodies(GetParam());
    return made;
  }
  void expect_near_reference(const RowShape& shape, int tokens, int window = 0) const {
    Ways fast = ways();
    Ways slow;
    fast.window = slow.window = window;
    expect_near(prefill(shape, tokens, fast), prefill(shape, tokens, slow));
  }
};

TEST_P(PrefillTest, Lengths) {
  for (const int tokens : {1, 2, 31, 33, 63, 64, 65, 130, 200}) {
    SCOPED_TRACE(tokens);
    expect_near_reference(RowShape(), tokens);
  }
}

TEST_P(PrefillTest, Shapes) {
  for (const int group : {1, 3, 4, 7, 16}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{2, 2}, {64, 64}, {80, 80}, {128, 128}, {34, 70}}) {
      SCOPED_TRACE(testing::Message() << group << " " << key_dim << " " << value_dim);
      RowShape shape;
      shape.kv_heads = 1;
      shape.group = group, shape.key_dim = key_dim, shape.value_dim = value_dim;
      expect_near_reference(shape, 70);
    }
  }
}

TEST_P(PrefillTest, ElementTypes) {
  for (const DType row : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
      RowShape shape;
      shape.row = row, shape.input = input, shape.key_dim = 40, shape.value_dim = 24;
      expect_near_reference(shape, 90);
    }
  }
}

TEST_P(PrefillTest, Windows) {
  for (const int window : {1, 63, 64, 65, 100}) {
    SCOPED_TRACE(window);
    expect_near_reference(RowShape(), 190, window);
  }
}

std::vector<float> falling_slopes(int heads) {
  std::vector<float> slopes;
  for (int head = 0; head < heads; ++head) slopes.push_back(std::exp2(-static_cast<float>(head)));
  return slopes;
}

TEST_P(PrefillTest, Alibi) {
  for (const int group : {1, 3, 7}) {
    for (const int window : {0, 65}) {
      SCOPED_TRACE(testing::Message() << group << " " << window);
      RowShape shape;
      shape.group = group, shape.key_dim = 34, shape.value_dim = 20;
      shape.slopes = falling_slopes(2 * group);
      expect_near_reference(shape, 203, window);
    }
  }
}

// Chunks, waves, staging and placement, with and without a window; with ALiBi where there is one.
TEST_P(PrefillTest, CutsDoNotMatter) {
  constexpr int kTokens = 530;
  for (const int window : {0, 90}) {
    RowShape shape;
    shape.key_dim = 48, shape.value_dim = 32;
    if (window > 0) shape.slopes = falling_slopes(4);
    Ways whole = ways();
    whole.window = window;
    const std::vector<float> truth = prefill(shape, kTokens, whole);
    for (const int chunk : {1, 7, 64, 100, 512}) {
      for (const int wave : {0, 1, 3}) {
        for (const bool on_device : {true, false}) {
          // A token at a time costs most and has nothing to add in most of the ways.
          if (chunk == 1 && (wave != 3 || on_device)) continue;
          Ways other = whole;
          other.chunk = chunk;
          other.wave_pages = wave;
          shape.on_device = on_device;
          shape.device_copies = !on_device && wave != 1;
          other.staged = !on_device && wave == 3;
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

// A later token's infinite value must not reach an earlier query, not even as 0 * inf, whatever
// chunk brought it; and scores of -inf are no weight.
TEST_P(PrefillTest, Infinities) {
  RowShape shape;
  shape.kv_heads = 1;
  const auto input = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kValue && dim == 1 && position == 40) return INFINITY;
    if (kind == InputKind::kKey && dim == 0 && position % 3 == 1) return -INFINITY;
    if (kind == InputKind::kQuery && dim == 0) return 0.5f;
    return noise(kind, sequence, layer, position, head, dim);
  };
  for (const int window : {0, 30}) {
    Ways whole = ways();
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

INSTANTIATE_TEST_SUITE_P(Targets, PrefillTest, testing::ValuesIn(cpu::supported_targets()),
                         [](const auto& test) { return std::string(target_name(test.param)); });

}  // namespace
}  // namespace fasa
