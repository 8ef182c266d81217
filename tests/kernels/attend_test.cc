// FAC and full attention, on every target of this processor: against the f64 reference, and bit for
// bit against itself over phases, waves, threads, batches and places of the rows.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/kernels/row_case.h"

namespace fasa {
namespace {

struct Result {
  std::vector<float> out, lse;
  bool operator==(const Result& other) const {  // bits, so that NaN equals NaN
    return same(out, other.out) && same(lse, other.lse);
  }
  static bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
};

// How one attention is cut up. Everything but `set`, `window` and `bodies` must not matter.
struct Cut {
  const cpu::RowBodies* bodies = nullptr;  // null: the reference
  std::optional<std::vector<int>> set;     // none: every visible token, from pages
  int window = 0;
  int wave = 0;  // 0: all at once
  bool phases = false;
  bool partials = false;
  bool staged = false;  // pages or rows copied to a place of their own
};

class Attention {
 public:
  Attention(const RowCase& cache, const RowStep& step, const Cut& cut)
      : cache_(cache), step_(step), cut_(cut), layout_(cache.layout()) {
    const auto count = static_cast<int64_t>(step.descs.size());
    width_ = layout_.row.value_dim + 2;
    result_.out.resize(
        static_cast<size_t>(step.tokens * layout_.query_heads() * layout_.row.value_dim), -77);
    result_.lse.resize(static_cast<size_t>(step.tokens * layout_.query_heads()), -77);
    state_.resize(static_cast<size_t>(count * layout_.query_heads() * width_), NAN);
    if (cut.set) {
      const auto heads = static_cast<size_t>(count * layout_.kv_heads);
      sizes_.assign(heads, static_cast<int32_t>(cut.set->size()));
      for (size_t head = 0; head < heads; ++head) {
        sets_.insert(sets_.end(), cut.set->begin(), cut.set->end());
      }
    }
  }

  Result run() {
    int total = cut_.set ? static_cast<int>(cut_.set->size()) : 0;
    if (!cut_.set) {
      for (const SequenceDesc& desc : step_.descs) total = std::max(total, desc.end());
    }
    const int wave = cut_.wave > 0 ? cut_.wave : (total + 31) / 32 * 32;
    for (int begin = 0; begin < total; begin += wave) {
      run_wave(begin, wave, begin == 0, begin + wave >= total);
    }
    return result_;
  }

 private:
  const std::byte* row_of(int sequence, int head, int position) const {
    return step_.descs[static_cast<size_t>(sequence)].row_blocks[position / kPageTokens] +
           layout_.row_offset(0, head, position % kPageTokens);
  }

  void run_wave(int begin, int wave, bool first, bool last) {
    AttendParams params;
    params.step = cache_.params(step_, 0);
    params.q = cache_.query_view(step_);
    params.scale = 1 / std::sqrt(static_cast<float>(layout_.row.key_dim));
    params.window = cut_.window;
    params.begin = begin;
    params.end = begin + wave;
    params.first_wave = first;
    params.last_wave = last;
    params.out = TensorView::dense(result_.out.data(), DType::kF32, step_.tokens,
                                   layout_.query_heads(), layout_.row.value_dim);
    params.lse = result_.lse.data();
    if (!first || !last) params.state = state_.data();
    const int count = static_cast<int>(step_.descs.size());
    const int heads = count * layout_.kv_heads;
    std::vector<float> partials(static_cast<size_t>(heads * layout_.group * (wave / 32) * width_),
                                NAN);
    if (cut_.partials || cut_.phases) params.partials = partials.data();

    std::vector<const std::byte*> rows(static_cast<size_t>(heads * wave), nullptr);
    std::vector<std::byte> copies;
    if (cut_.set) {
      params.set_sizes = sizes_.data();
      params.sets = sets_.data();
      params.set_capacity = static_cast<int32_t>(cut_.set->size());
      params.rows = rows.data();
      fill_rows(begin, wave, rows, copies);
    } else if (cut_.staged) {
      params.pages = stage_pages(begin, wave, copies);
    }
    if (cut_.bodies == nullptr) return reference::attend(params);
    std::vector<uint8_t> ready(static_cast<size_t>(heads * (wave / 32)));
    for (size_t i = 0; i < ready.size(); ++i) ready[i] = i % 3 == 1;
    params.tile_ready = ready.data();
    if (!cut_.phases) {
      cpu::attend_with(*cut_.bodies, params);
      return;
    }
    params.phase = AttendPhase::kReadyTiles;
    cpu::attend_with(*cut_.bodies, params);
    params.phase = AttendPhase::kRemainingTiles;
    cpu::attend_with(*cut_.bodies, params);
  }

  void fill_rows(int begin, int wave, std::vector<const std::byte*>& rows,
                 std::vector<std::byte>& copies) const {
    const int64_t row_bytes = layout_.row.bytes();
    copies.resize(rows.size() * static_cast<size_t>(row_bytes));
    for (int head = 0; head < static_cast<int>(sizes_.size()); ++head) {
      for (int i = begin; i < std::min(begin + wave, static_cast<int>(cut_.set->size())); ++i) {
        const size_t at = static_cast<size_t>(head * wave + i - begin);
        rows[at] = row_of(head / layout_.kv_heads, head % layout_.kv_heads,
                          (*cut_.set)[static_cast<size_t>(i)]);
        if (!cut_.staged) continue;
        std::byte* copy = copies.data() + static_cast<int64_t>(at) * row_bytes;
        std::memcpy(copy, rows[at], static_cast<size_t>(row_bytes));
        rows[at] = copy;
      }
    }
  }

  // The wave's pages beside each other, but for the first, which stays in its row block.
  StagedPages stage_pages(int begin, int wave, std::vector<std::byte>& copies) const {
    StagedPages pages;
    pages.first_page = begin / kPageTokens + 1;
    pages.pages = wave / kPageTokens + 1;
    const int count = static_cast<int>(step_.descs.size());
    copies.resize(static_cast<size_t>(count * pages.pages * layout_.row_layer_bytes()));
    for (int s = 0; s < count; ++s) {
      const int end = step_.descs[static_cast<size_t>(s)].end();
      for (int page = 0; page < pages.pages; ++page) {
        if ((pages.first_page + page) * kPageTokens >= end) continue;
        std::memcpy(copies.data() + (s * pages.pages + page) * layout_.row_layer_bytes(),
                    row_of(s, 0, (pages.first_page + page) * kPageTokens),
                    static_cast<size_t>(layout_.row_layer_bytes()));
      }
    }
    pages.data = copies.data();
    return pages;
  }

  const RowCase& cache_;
  const RowStep& step_;
  const Cut& cut_;
  const CacheLayout& layout_;
  int64_t width_ = 0;
  std::vector<int32_t> sizes_, sets_;
  std::vector<float> state_;
  Result result_;
};

Result attention(const RowCase& cache, const RowStep& step, const Cut& cut) {
  return Attention(cache, step, cut).run();
}

// `length` tokens in the cache, the last of them the step's.
struct Decode {
  Decode(const RowShape& shape, const std::vector<int>& lengths,
         const RowCase::InputOf& input = noise)
      : cache(shape, ids(lengths.size()), 1200) {
    cache.set_input(input);
    std::vector<Advance> all, last;
    for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
      all.push_back({s, lengths[static_cast<size_t>(s)]});
      last.push_back({s, 1, StepMode::kDecode});
    }
    cache.advance(all);
    for (int s = 0; s < static_cast<int>(lengths.size()); ++s) --cache.sequence(s).length;
    step = cache.begin(last);
    cache.fill(step, 0);
  }
  static std::vector<int> ids(size_t count) {
    std::vector<int> all(count);
    std::iota(all.begin(), all.end(), 10);
    return all;
  }
  RowCase cache;
  RowStep step;
};

// Values lie in (-1, 1), so an output moves by at most the relative error of its weights. A score
// is a sum of key_dim products of magnitude < 1 times key_dim^-1/2: an error of at most
// key_dim^1/2 * log2(key_dim) * 2^-24 < 1e-5 for the dimensions here; exp adds 2 ulp, the sums over
// tokens stay below 1e-5 too. lse adds the rounding of its own size (< 16).
constexpr float kTolerance = 3e-5f;

void expect_near(const Result& result, const Result& truth) {
  ASSERT_EQ(result.out.size(), truth.out.size());
  for (size_t i = 0; i < truth.out.size(); ++i) {
    ASSERT_NEAR(result.out[i], truth.out[i], kTolerance) << "element " << i;
  }
  for (size_t i = 0; i < truth.lse.size(); ++i) {
    ASSERT_NEAR(result.lse[i], truth.lse[i], kTolerance) << "head " << i;
  }
}

class AttendTest : public testing::TestWithParam<cpu::Target> {
 protected:
  const cpu::RowBodies& bodies() const { return cpu::row_bodies(GetParam()); }
  Cut cut() const {
    Cut made;
    made.bodies = &bodies();
    return made;
  }
  // Every way to cut it gives the bits of the plain one, which is near the reference.
  void expect_all_cuts_equal(const Decode& decode, const Cut& plain) const {
    const Result truth = [&] {
      Cut reference = plain;
      reference.bodies = nullptr;
      return attention(decode.cache, decode.step, reference);
    }();
    const Result result = attention(decode.cache, decode.step, plain);
    expect_near(result, truth);
    for (const int wave : {0, 32, 96, 256}) {
      for (const int how : {0, 1, 2, 3, 4, 5}) {
        Cut other = plain;
        other.wave = wave;
        other.staged = how % 2 == 1;
        other.partials = how / 2 == 1;
        other.phases = how / 2 == 2;
        EXPECT_TRUE(attention(decode.cache, decode.step, other) == result)
            << "wave " << wave << ", way " << how;
      }
    }
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
         {std::pair{2, 2}, {64, 64}, {80, 80}, {128, 128}, {34, 70}, {192, 128}}) {
      SCOPED_TRACE(testing::Message() << group << " " << key_dim << " " << value_dim);
      RowShape shape;
      shape.group = group, shape.key_dim = key_dim, shape.value_dim = value_dim;
      const Decode decode(shape, {67});
      expect_all_cuts_equal(decode, cut());
    }
  }
}

TEST_P(AttendTest, ElementTypes) {
  for (const DType row : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
      RowShape shape;
      shape.row = row, shape.input = input, shape.key_dim = 40, shape.value_dim = 24;
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

// Steep slopes for some heads: their scores reach hundreds, by weights whose error stays theirs.
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
  // Keys of -inf against positive queries: whole tiles of -inf, then some tokens that count.
  RowShape shape;
  shape.kv_heads = 1, shape.group = 2;
  const auto keys = [](InputKind kind, int sequence, int layer, int position, int head, int dim) {
    if (kind == InputKind::kKey && dim == 0 && position % 96 < 64) return -INFINITY;
    const float value = noise(kind, sequence, layer, position, head, dim);
    return kind == InputKind::kQuery && dim == 0 ? 1.0f : value;
  };
  expect_all_cuts_equal(Decode(shape, {300}, keys), cut());
  // Every score -inf: no weight anywhere, no NaN either.
  const Decode nothing(shape, {40}, keys);
  const Result empty = attention(nothing.cache, nothing.step, cut());
  for (const float value : empty.out) EXPECT_EQ(value, 0);
  for (const float value : empty.lse) EXPECT_EQ(value, -INFINITY);
  // An infinite value stays in its dimension.
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

// Weights that underflow and scores far apart: the tiles' maxima differ by hundreds.
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

INSTANTIATE_TEST_SUITE_P(Targets, AttendTest, testing::ValuesIn(cpu::supported_targets()),
                         [](const auto& test) { return std::string(target_name(test.param)); });

}  // namespace
}  // namespace fasa
