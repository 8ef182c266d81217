// Plain C++; also scores pages with non-finite values: f32 throughout, codes times scales without
// requantising.
#include <bit>
#include <cstring>

#include "kernels/cpu/select/score_bodies.h"
#include "kernels/slice_codec.h"

namespace fasa::cpu {
namespace {

#include "kernels/cpu/select/score_append_inl.h"

// One lane of score_body_inl.h's filter.
struct Scalar {
  using F = float;
  static constexpr int kLanes = 1;
  static F set_f(float x) { return x; }
  static F load_f(const float* p) { return *p; }
  static F load_unaligned(const float* p) { return *p; }
  static void store_f(float* p, F x) { *p = x; }
  static F sub(F a, F b) { return a - b; }
  static F max(F a, F b) { return b > a ? b : a; }
  static uint32_t not_negative(F x) { return x >= 0 ? 1 : 0; }
};

#include "kernels/cpu/select/score_body_inl.h"

// scores[h] += weight[h] * values, for the tokens of a page.
void add_dim(const PageQuery& query, int dim, float scale, const float* values, float* scores) {
  for (int h = 0; h < query.heads; ++h) {
    const float weight = query.q[h * query.stride + dim] * scale;
    float* of_head = scores + h * kPageTokens;
    for (int t = 0; t < kPageTokens; ++t) of_head[t] += weight * values[t];
  }
}

bool finite_scores(const PageQuery& query, const float* scores) {
  float check = 0;
  for (int t = 0; t < query.heads * kPageTokens; ++t) check += scores[t];
  return check - check == 0;
}

template <int kBits>
bool score_coded(const PageQuery& query, const std::byte* page, float base, const std::byte*,
                 float* scores) {
  constexpr int kUnit = 32 / kBits;
  std::memset(scores, 0, sizeof(float) * static_cast<size_t>(query.heads) * kPageTokens);
  const std::byte* parameters = page + query.code_bytes;
  for (int dim = 0; dim < query.dims; ++dim) {
    uint32_t lanes[kPageTokens];
    std::memcpy(lanes, page + dim / kUnit * kPageTokens * 4, sizeof(lanes));
    uint16_t parameter;
    std::memcpy(&parameter, parameters + dim * 2, sizeof(parameter));
    const float zero = parameter_zero(parameter, kBits);
    const int shift = dim % 4 * 8 + dim % kUnit / 4 * kBits;
    float values[kPageTokens];
    for (int t = 0; t < kPageTokens; ++t) {
      const uint32_t code = (lanes[t] >> shift) & ((1u << kBits) - 1);
      values[t] = zero + static_cast<float>(static_cast<int32_t>(code));
    }
    add_dim(query, dim, parameter_scale(parameter, base), values, scores);
  }
  return finite_scores(query, scores);
}

template <bool kPairs>
bool score_plain(const PageQuery& query, const std::byte* page, float, const std::byte*,
                 float* scores) {
  std::memset(scores, 0, sizeof(float) * static_cast<size_t>(query.heads) * kPageTokens);
  for (int dim = 0; dim < query.dims; ++dim) {
    uint32_t lanes[kPageTokens];
    std::memcpy(lanes, page + (kPairs ? dim / 2 : dim) * kPageTokens * 4, sizeof(lanes));
    float values[kPageTokens];
    for (int t = 0; t < kPageTokens; ++t) {
      const uint32_t bits = !kPairs        ? lanes[t]
                            : dim % 2 == 0 ? lanes[t] << 16
                                           : lanes[t] & ~0xffffu;
      values[t] = std::bit_cast<float>(bits);
    }
    add_dim(query, dim, 1, values, scores);
  }
  return finite_scores(query, scores);
}

template <int... kBits>
constexpr ScoreBodies portable_bodies(CodeWidths<kBits...>) {
  return {{score_plain<false>, score_plain<true>, score_coded<kBits>...},
          filter_page<Scalar>,
          append_one_by_one,
          relative_keys_of,
          raise_maxima_of<Scalar>,
          count_keys,
          find_one_by_one,
          soft_cap_all<Scalar>,
          code_scores_of<Scalar>,
          take_out_of};
}

}  // namespace

constinit const ScoreBodies kScorePortable = portable_bodies(AllCodeWidths());

}  // namespace fasa::cpu
