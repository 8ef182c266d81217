#include "kernels/cpu/select/page_scorer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/kernel_work.h"

namespace fasa::cpu {

namespace {

// Floats between the heads of a query in slice order.
int query_stride(const SliceFormat& format) {
  return static_cast<int>(align_up(format.padded_dims()));
}

}  // namespace

void PageScratch::begin(const CacheLayout& layout) {
  const auto row = static_cast<size_t>(query_stride(layout.slice));
  float* weights = weights_.reserve(row * kScoreHeads);
  std::memset(weights, 0, row * kScoreHeads * sizeof(float));
  codes_.reserve(row * kScoreHeads * 2);
  scores_.reserve(static_cast<size_t>(layout.gqa_group) * kPageTokens);
}

void PageScorer::begin(const SelectParams& params, int sequence, int kv_head, int first_visible,
                       const ScoreBodies& bodies) {
  const CacheLayout& layout = params.step.layout;
  bodies_ = &bodies;
  sequence_ = params.step.sequences + sequence;
  format_ = layout.slice;
  slice_offset_ = layout.slice_offset(params.step.layer, kv_head);
  base_offset_ = layout.head_index(params.step.layer, kv_head) * int64_t{sizeof(float)};
  tail_offset_ = layout.tail_offset(params.step.layer, kv_head);
  heads_ = layout.gqa_group;
  stride_ = query_stride(format_);
  first_visible_ = first_visible;
  end_ = params.ahead > 0 ? sequence_->start : sequence_->end();
  scored_dims_ = format_.prefix(params.score_dims).dims;
  slopes_ = params.step.slopes == nullptr ? nullptr : params.step.slopes + kv_head * heads_;
  score_cap_ = params.step.score_cap;
  bytes_read_ = 0;
  nan_scores_ = 0;

  const size_t row = static_cast<size_t>(stride_);
  float* query = query_.reserve(row * static_cast<size_t>(heads_));
  const int16_t* dims = params.step.slice_dims + kv_head * format_.dims;
  for (int h = 0; h < heads_; ++h, query += stride_) {
    const int64_t at = params.q.offset(sequence_->first_token, kv_head * heads_ + h);
    for (int d = 0; d < stride_; ++d) {
      query[d] =
          d < scored_dims_ ? load_element(params.q.dtype, params.q.data, at + dims[d]) : 0.0f;
    }
  }
}

PageScorer::Source PageScorer::source_of(int page) const {
  if (page >= sequence_->sealed_pages()) return {sequence_->tail + tail_offset_, 1, format_.tail()};
  const std::byte* block = sequence_->slice_blocks[page];
  float base = 1;
  if (is_coded(format_.dtype)) std::memcpy(&base, block + base_offset_, sizeof(base));
  return {block + slice_offset_, base, format_};
}

uint64_t PageScorer::visible_tokens(int page) const {
  const int start = page * kPageTokens;
  uint64_t visible = ~uint64_t{0};
  if (start + kPageTokens > end_) visible >>= start + kPageTokens - end_;
  if (start < first_visible_) visible &= ~uint64_t{0} << (first_visible_ - start);
  return visible;
}

const std::byte* PageScorer::ahead(int page) const {
  if (page >= sequence_->sealed_pages()) return sequence_->tail + tail_offset_;
  const std::byte* block = sequence_->slice_blocks[page];
  __builtin_prefetch(block + base_offset_);
  return block + slice_offset_;
}

uint64_t PageScorer::score(int page, const std::byte* next, PageScratch* scratch, float* scores) {
  const Source source = source_of(page);
  const int index = score_index(source.format.dtype);
  bool finite = true;
  const SliceFormat part{source.format.dtype, scored_dims_};
  PageQuery query{nullptr, scratch->weights(), scratch->codes(),          0,
                  stride_, part.padded_dims(), source.format.code_bytes()};
  for (int h = 0; h < heads_; h += kScoreHeads) {
    query.q = query_.data() + h * stride_;
    query.heads = std::min(heads_ - h, kScoreHeads);
    float* out = scores + h * kPageTokens;
    if (bodies_->score[index](query, source.data, source.base, next, out)) continue;
    finite = false;
    if (is_coded(source.format.dtype)) {
      kScorePortable.score[index](query, source.data, source.base, nullptr, out);
    }
  }
  bytes_read_ += scored_page_bytes(part);
  if (slopes_ != nullptr) add_slopes(page, scores);
  const uint64_t visible = visible_tokens(page);
  if (score_cap_ > 0) bodies_->soft_cap(scores, heads_ * kPageTokens, score_cap_);
  if (!finite || visible != ~uint64_t{0}) make_finite(visible, scores);
  return visible;
}

void PageScorer::add_slopes(int page, float* scores) const {
  const auto nearest = static_cast<float>(page * kPageTokens - (sequence_->end() - 1));
  for (int h = 0; h < heads_; ++h, scores += kPageTokens) {
    for (int t = 0; t < kPageTokens; ++t) {
      scores[t] += slopes_[h] * (nearest + static_cast<float>(t));
    }
  }
}

void PageScorer::make_finite(uint64_t visible, float* scores) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int h = 0; h < heads_; ++h) {
    for (int t = 0; t < kPageTokens; ++t) {
      float& score = scores[h * kPageTokens + t];
      if ((visible >> t & 1) == 0) {
        score = -kInfinity;
      } else if (std::isnan(score)) {
        score = -kInfinity;
        ++nan_scores_;
      } else if (score == kInfinity) {
        score = std::numeric_limits<float>::max();
      }
    }
  }
}

}  // namespace fasa::cpu
