// Decode attention over a small cache, split in every way; shared by the tests of all FAC kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "tests/kernels/row_case.h"

namespace fasa::attend_case {

struct Result {
  std::vector<float> out, lse;
  bool operator==(const Result& other) const {  // compares bits, so that NaN equals NaN
    return same(out, other.out) && same(lse, other.lse);
  }
  static bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
};

// How one attention is split. Only `set`, `low_bit`, `window` and `run` may change the result.
struct Cut {
  std::function<void(const AttendParams&)> run = reference::attend;
  std::optional<std::vector<int>> set;  // nullopt: every visible token, read from pages
  int window = 0;
  int wave = 0;  // 0: all at once
  bool phases = false;
  bool partials = false;
  bool copied = false;   // pages or rows copied to a separate buffer
  bool by_head = false;  // one call per KV head
  // The low-bit set of every KV head, with scores by (query head, index). Empty: no low-bit set.
  std::vector<int> low_bit = {};
  bool low_bit_pages = false;  // all tokens outside the set, by page; scores by (head, position)
  float tolerance = 0;         // against the reference; 0: that of rows in f32 or codes
  std::function<float(int, int)> low_bit_score = [](int head, int i) {
    return 8 * noise(InputKind::kQuery, 77, 0, i, head, 1);
  };
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
    make_low_bit(count);
    if (cut.low_bit_pages) make_low_bit_pages();
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

  void make_low_bit(int64_t count) {
    const auto heads = static_cast<size_t>(count * layout_.kv_heads);
    low_bit_sizes_.assign(heads, static_cast<int32_t>(cut_.low_bit.size()));
    const size_t capacity = cut_.low_bit.size() + 5;  // leaves a gap between the heads' rows
    for (size_t head = 0; head < heads; ++head) {
      low_bit_.insert(low_bit_.end(), cut_.low_bit.begin(), cut_.low_bit.end());
      low_bit_.resize((head + 1) * capacity, -1);
    }
    for (int head = 0; head < static_cast<int>(heads) * layout_.gqa_group; ++head) {
      for (int i = 0; i < static_cast<int>(capacity); ++i) {
        low_bit_scores_.push_back(i < low_bit_sizes_[0] ? cut_.low_bit_score(head, i) : NAN);
      }
    }
    const size_t tiles = (capacity + kTileTokens - 1) / kTileTokens;
    low_bit_partials_.assign(heads * static_cast<size_t>(layout_.gqa_group * width_) * tiles, NAN);
  }
  LowBitSet low_bit_set() {
    if (cut_.low_bit.empty()) return {};
    return {.capacity = static_cast<int32_t>(cut_.low_bit.size() + 5),
            .positions = low_bit_.data(),
            .sizes = low_bit_sizes_.data(),
            .scores = low_bit_scores_.data()};
  }

  void make_low_bit_pages() {
    int longest = 0;
    for (const SequenceDesc& desc : step_.descs) longest = std::max(longest, desc.end());
    const auto queries = step_.descs.size() * static_cast<size_t>(layout_.query_heads());
    page_capacity_ = pages_of(longest) + 3;
    page_scores_.assign(queries * static_cast<size_t>(page_capacity_ * kPageTokens), 77);
    page_maxima_.assign(queries * static_cast<size_t>(page_capacity_), NAN);
    page_counts_.clear();
    for (const SequenceDesc& desc : step_.descs) {
      const int first = cut_.window > 0 ? std::max(0, desc.end() - cut_.window) : 0;
      const int pages = pages_of(desc.end()) - first / kPageTokens;
      const int query = static_cast<int>(page_counts_.size()) * layout_.gqa_group;
      page_counts_.insert(page_counts_.end(), static_cast<size_t>(layout_.kv_heads), pages);
      for (int h = 0; h < layout_.query_heads(); ++h) {
        for (int page = 0; page < pages; ++page) {
          const int64_t at = int64_t{query + h} * page_capacity_ + page;
          code_page(h, first / kPageTokens + page, first, desc.end(), at);
        }
      }
    }
  }
  // The maximum is reached by the page's first low-bit token.
  void code_page(int head, int page, int first, int end, int64_t at) {
    float& maximum = page_maxima_[static_cast<size_t>(at)];
    maximum = -INFINITY;
    for (int t = 0; t < kPageTokens; ++t) {
      const int position = page * kPageTokens + t;
      int16_t& code = page_scores_[static_cast<size_t>(at * kPageTokens + t)];
      const bool in_set = std::ranges::binary_search(*cut_.set, position);
      const float score = cut_.low_bit_score(head, position);
      const bool none = position < first || position >= end || in_set || score == -INFINITY;
      code = none ? kNoScoreCode : static_cast<int16_t>(-std::abs(score) * kScoreUnits);
      if (none || maximum != -INFINITY) continue;
      maximum = cut_.low_bit_score(head, -page) / 4;
      code = 0;
    }
  }
  LowBitPages low_bit_pages() {
    if (!cut_.low_bit_pages) return {};
    return {.capacity = page_capacity_,
            .counts = page_counts_.data(),
            .maxima = page_maxima_.data(),
            .scores = page_scores_.data()};
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
    std::vector<float> partials(
        static_cast<size_t>(heads * layout_.gqa_group * (wave / 32) * width_), NAN);
    if (cut_.partials || cut_.phases) params.partials = partials.data();
    if (last) params.low_bit = low_bit_set();
    if (last) params.low_bit_pages = low_bit_pages();
    const int blocks = low_bit_blocks(params.low_bit_pages.capacity);
    if (blocks > 0) {
      low_bit_partials_.assign(static_cast<size_t>(heads * layout_.gqa_group * width_ * blocks),
                               NAN);
    }
    if (params.partials != nullptr) params.low_bit_partials = low_bit_partials_.data();

    std::vector<const std::byte*> rows(static_cast<size_t>(heads * wave), nullptr);
    std::vector<std::byte> copies;
    if (cut_.set) {
      params.selected_sizes = sizes_.data();
      params.sets = sets_.data();
      params.selected_capacity = static_cast<int32_t>(cut_.set->size());
      params.rows = rows.data();
      fill_rows(begin, wave, rows, copies);
    } else if (cut_.copied) {
      params.pages = copy_pages(begin, wave, copies);
    }
    std::vector<uint8_t> ready(static_cast<size_t>(heads * (wave / 32)));
    for (size_t i = 0; i < ready.size(); ++i) ready[i] = i % 3 == 1;
    // Without flags no tile is ready.
    params.tile_ready = cut_.phases && begin / wave % 2 == 1 ? nullptr : ready.data();
    if (!cut_.phases) return run_heads(params);
    params.phase = AttendPhase::kReadyTiles;
    run_heads(params);
    params.phase = AttendPhase::kRemainingTiles;
    run_heads(params);
  }

  // Last head first: heads are independent.
  void run_heads(AttendParams params) const {
    for (int head = cut_.by_head ? layout_.kv_heads : 0; head-- > 0;) {
      params.step.heads = {head, head + 1};
      cut_.run(params);
    }
    if (!cut_.by_head) cut_.run(params);
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
        if (!cut_.copied) continue;
        std::byte* copy = copies.data() + static_cast<int64_t>(at) * row_bytes;
        std::memcpy(copy, rows[at], static_cast<size_t>(row_bytes));
        rows[at] = copy;
      }
    }
  }

  // Copies the wave's pages into one buffer, except the first, which stays in its block.
  CopiedPages copy_pages(int begin, int wave, std::vector<std::byte>& copies) const {
    CopiedPages pages;
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
  std::vector<int32_t> sizes_, sets_, low_bit_sizes_, low_bit_, page_counts_;
  std::vector<float> state_, low_bit_scores_, low_bit_partials_, page_maxima_;
  std::vector<int16_t> page_scores_;
  int page_capacity_ = 0;
  Result result_;
};

inline Result attention(const RowCase& cache, const RowStep& step, const Cut& cut) {
  return Attention(cache, step, cut).run();
}

// A cache of `length` tokens per sequence; the last token is the step's.
struct Decode {
  Decode(const RowShape& shape, const std::vector<int>& lengths,
         const RowCase::InputOf& input = noise)
      : cache(shape, ids(lengths.size()), std::ranges::max(lengths)) {
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

// Values lie in (-1, 1), so an output's error is at most the relative error of its weights. A score
// is a sum of key_dim products of magnitude < 1 times key_dim^-1/2: an error of at most key_dim^1/2
// * log2(key_dim) * 2^-24 < 1e-5 for the dimensions here. exp adds 2 ulp, and the sums over tokens
// stay below 1e-5 too. lse adds the rounding of its own magnitude (< 16).
inline constexpr float kTolerance = 3e-5f;
// Weights of coded rows have 16 bits: each is off by at most 2^-16 of its tile's largest weight,
// which here is within four times the tile's mean.
inline constexpr float kCodedTolerance = kTolerance + 0x1p-14f;

// Weights of low-bit pages in f16: 2^-12 of a weight.
inline constexpr float kF16WeightTolerance = 5e-4f;

inline void expect_near(const Result& result, const Result& truth, float tolerance) {
  ASSERT_EQ(result.out.size(), truth.out.size());
  for (size_t i = 0; i < truth.out.size(); ++i) {
    ASSERT_NEAR(result.out[i], truth.out[i], tolerance) << "element " << i;
  }
  for (size_t i = 0; i < truth.lse.size(); ++i) {
    ASSERT_NEAR(result.lse[i], truth.lse[i], std::max(kTolerance, tolerance / 10)) << "head " << i;
  }
}

// Every split gives the bits of the plain one, which is near the reference.
inline void expect_all_cuts_equal(const Decode& decode, const Cut& plain,
                                  const std::vector<int>& waves = {0, 32, 96, 256}) {
  Cut reference = plain;
  reference.run = reference::attend;
  const Result truth = attention(decode.cache, decode.step, reference);
  const Result result = attention(decode.cache, decode.step, plain);
  const bool coded = decode.cache.layout().row.dtype.is_coded();
  expect_near(result, truth,
              plain.tolerance > 0 ? plain.tolerance
              : coded             ? kCodedTolerance
                                  : kTolerance);
  for (const int wave : waves) {
    for (const int how : {0, 1, 2, 3, 4, 5, 6, 7}) {
      Cut other = plain;
      other.wave = wave;
      other.copied = how % 2 == 1;
      other.partials = how / 2 == 1 || how == 7;
      other.phases = how / 2 == 2;
      other.by_head = how / 2 == 3;
      EXPECT_TRUE(attention(decode.cache, decode.step, other) == result)
          << "wave " << wave << ", way " << how;
    }
  }
}

}  // namespace fasa::attend_case
