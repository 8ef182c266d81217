// Prefills of a small cache, in chunks, waves and placements; shared by the tests of all prefill
// attention kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/kernels/row_case.h"

namespace fasa::prefill_case {

struct Ways {
  std::function<void(const PrefillParams&)> run = reference::prefill;
  int window = 0;
  int chunk = 1 << 20;
  int wave_pages = 0;   // 0: all pages in one call
  bool copied = false;  // older pages copied into one buffer (host placement)
  DType out = DType::kF32;
};

// Outputs and log-sum-exps of every token. All sequences have the same length and are prefilled in
// chunks.
class Prefill {
 public:
  Prefill(const RowShape& shape, const std::vector<int>& ids, int tokens, const Ways& ways,
          const RowCase::InputOf& input)
      : shape_(shape), ways_(ways), tokens_(tokens), cache_(shape, ids, tokens) {
    cache_.set_input(input);
    for (size_t s = 0; s < ids.size(); ++s) out_.emplace_back();
    while (cache_.sequence(0).length < tokens) run_chunk(static_cast<int>(ids.size()));
  }
  // [token][query head][value_dim + 1]; the last element is the log-sum-exp.
  const std::vector<float>& of(int sequence) const { return out_[static_cast<size_t>(sequence)]; }

 private:
  void run_chunk(int count) {
    std::vector<Advance> advances;
    for (int s = 0; s < count; ++s) {
      advances.push_back({s, std::min(ways_.chunk, tokens_ - cache_.sequence(s).length)});
    }
    RowStep step = cache_.begin(advances);
    cache_.fill(step, 0);
    cpu::run(cache_.append_params(step, 0));
    attend(step);
    if (!shape_.on_device) cpu::run(WriteBackParams{cache_.params(step, 0)});
    cache_.commit(advances);
  }

  void attend(const RowStep& step) {
    const CacheLayout& layout = cache_.layout();
    const int value_dim = layout.row.value_dim;
    const auto heads = static_cast<size_t>(step.tokens * layout.query_heads());
    const size_t elements = heads * static_cast<size_t>(value_dim);
    std::vector<std::byte> out(elements * static_cast<size_t>(dtype_bytes(ways_.out)),
                               std::byte{0xEE});
    std::vector<float> lse(heads, -77);
    std::vector<float> state(heads * static_cast<size_t>(value_dim + 2), NAN);
    PrefillParams params;
    params.step = cache_.params(step, 0);
    params.q = cache_.query_view(step);
    params.scale = 1 / std::sqrt(static_cast<float>(layout.row.key_dim));
    params.window = ways_.window;
    params.out =
        TensorView::dense(out.data(), ways_.out, step.tokens, layout.query_heads(), value_dim);
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
      if (ways_.copied) params.pages = copy_pages(step, begin, wave, copies);
      ways_.run(params);
    }
    std::vector<float> values;
    for (size_t i = 0; i < elements; ++i) {
      values.push_back(load_element(ways_.out, out.data(), static_cast<int64_t>(i)));
    }
    collect(step, values, lse);
  }

  CopiedPages copy_pages(const RowStep& step, int begin, int wave, std::vector<std::byte>& copies) {
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

inline std::vector<float> prefill(const RowShape& shape, int tokens, const Ways& ways,
                                  const RowCase::InputOf& input = noise) {
  return Prefill(shape, {4}, tokens, ways, input).of(0);
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The error bound is derived in attend_case.h.
inline constexpr float kTolerance = 3e-5f;

inline void expect_near(const std::vector<float>& result, const std::vector<float>& truth,
                        float tolerance = kTolerance) {
  ASSERT_EQ(result.size(), truth.size());
  for (size_t i = 0; i < truth.size(); ++i) ASSERT_NEAR(result[i], truth[i], tolerance) << i;
}

}  // namespace fasa::prefill_case
