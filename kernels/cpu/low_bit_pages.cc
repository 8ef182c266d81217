#include "kernels/cpu/low_bit_pages.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/select/page_scorer.h"
#include "kernels/kernel_work.h"
#include "kernels/softmax_state.h"
#include "runtime/base/dtype.h"

namespace fasa::cpu {

namespace {

// Copies sums from code order: four dimensions of each plane in turn make up a word.
void order_sums(const float* sums, const SliceFormat& format, float* out) {
  const int unit = 32 / slice_bits(format.dtype);
  for (int word = 0; word < format.groups(); ++word) {
    const float* from = sums + sum_place(word, unit);
    for (int d = word * unit; d < (word + 1) * unit; d += 4, from += kChunkLanes) {
      if (d + 4 <= format.dims) {
        std::memcpy(out + d, from, 4 * sizeof(float));
      } else {
        std::copy_n(from, std::max(format.dims - d, 0), out + d);
      }
    }
  }
}

}  // namespace

// A block of one sequence, and this thread's memory for it. Heads are counted from the first.
struct LowBitBlocks::Work {
  const SequenceDesc* sequence = nullptr;
  HeadSpan heads;
  int64_t first_query = 0;  // in the arrays of LowBitPages
  int first = 0;            // page, from the first visible one
  int count = 0;            // pages
  int first_page = 0;       // position / kPageTokens of page `first`
  int sum_stride = 0;
  ScratchArray<float> sums;     // [group][sum_stride], of one KV head
  ScratchArray<float> totals;   // [group]
  ScratchArray<float> tops;     // [group], maxima of the block
  ScratchArray<float> factors;  // [group][kLowBitBlockPages]
  ScratchArray<float> scales;

  int sealed() const { return std::clamp(sequence->sealed_pages() - first_page, 0, count); }
};

uint64_t LowBitBlocks::compute(int sequence, HeadSpan heads, int block,
                               const LowBitPartials& partials) const {
  thread_local Work work;  // grows only
  const int index = sequence * layout_.kv_heads + heads.begin;
  const int group = layout_.gqa_group;
  const int bits = slice_bits(layout_.values.dtype);
  work.sequence = params_.step.sequences + sequence;
  work.heads = heads;
  work.first_query = int64_t{index} * group;
  work.first = block * kLowBitBlockPages;
  work.count = std::min(kLowBitBlockPages, pages(index) - work.first);
  const int end_page = pages_of(work.sequence->end());
  work.first_page = end_page - pages(index) + work.first;
  work.sum_stride = sum_dims(layout_.values.groups(), bits);
  const bool has_tail = work.sealed() < work.count;
  for (int head = 0; head < heads.end - heads.begin; ++head) {
    weigh_pages(work, head);
    attend_sealed(work, head);
    float* out = partials.first + head * partials.head_stride;
    for (int h = 0; h < group; ++h) {
      float* partial = out + h * partials.query_stride;
      partial[0] = work.tops.data()[h];
      partial[1] = work.totals.data()[h];
      order_sums(work.sums.data() + int64_t{h} * work.sum_stride, layout_.values,
                 partial + kSoftmaxHeader);
    }
    if (has_tail) attend_tail(work, head, out, partials.query_stride);
  }
  const int64_t first = int64_t{work.first_page} * kPageTokens;
  const int64_t end = std::min<int64_t>(first + work.count * kPageTokens, work.sequence->end());
  const uint64_t codes =
      has_tail ? value_pages_bytes(layout_, first, end)
               : static_cast<uint64_t>(work.count) * scored_page_bytes(layout_.values);
  return static_cast<uint64_t>(heads.end - heads.begin) *
         (codes + page_scores_bytes(layout_, work.count));
}

void LowBitBlocks::weigh_pages(Work& work, int head) const {
  const LowBitPages& low_bit = params_.low_bit_pages;
  const int group = layout_.gqa_group;
  float* tops = work.tops.reserve(static_cast<size_t>(group));
  float* factors = work.factors.reserve(static_cast<size_t>(group * kLowBitBlockPages));
  for (int h = 0; h < group; ++h, factors += kLowBitBlockPages) {
    const int64_t at = low_bit.at(work.first_query + head * group + h) + work.first;
    tops[h] = bodies_.find_factors(low_bit.maxima + at, work.count, factors);
  }
}

void LowBitBlocks::attend_sealed(Work& work, int head) const {
  const LowBitPages& low_bit = params_.low_bit_pages;
  const SliceFormat& format = layout_.values;
  const int layer = params_.step.layer;
  const int kv_head = work.heads.begin + head;
  const int group = layout_.gqa_group;
  const int bits = slice_bits(format.dtype);
  const size_t floats = static_cast<size_t>(group) * static_cast<size_t>(work.sum_stride);
  const auto block_of = [&](int page) {
    return work.sequence->slice_blocks[work.first_page + page];
  };
  const auto codes_of = [&](int page, int of_head) {
    return reinterpret_cast<const unsigned char*>(block_of(page)) +
           layout_.value_offset(layer, of_head);
  };
  const int sealed = work.sealed();
  const unsigned char* codes[kLowBitBlockPages + 1];
  float bases[kLowBitBlockPages];
  for (int page = 0; page < sealed; ++page) {
    codes[page] = codes_of(page, kv_head);
    bases[page] =
        *reinterpret_cast<const float*>(block_of(page) + layout_.value_base_offset(layer, kv_head));
  }
  const int64_t at = low_bit.at(work.first_query + head * group) + work.first;
  codes[sealed] = nullptr;
  if (sealed > 0 && kv_head + 1 < work.heads.end) {
    codes[sealed] = codes_of(0, kv_head + 1);
  } else if (work.first_page + sealed < work.sequence->sealed_pages()) {
    codes[sealed] = codes_of(sealed, work.heads.begin);
  }
  LowBitPagesTask task;
  task.group = group;
  task.words = format.groups();
  task.pages = sealed;
  task.codes = codes;
  task.code_bytes = format.code_bytes();
  task.bases = bases;
  task.scores = low_bit.scores + at * kPageTokens;
  task.score_stride = int64_t{low_bit.capacity} * kPageTokens;
  task.factors = work.factors.data();
  task.totals = work.totals.reserve(static_cast<size_t>(group));
  task.sums = work.sums.reserve(floats);
  task.sum_stride = work.sum_stride;
  task.scales = work.scales.reserve(static_cast<size_t>(2 * work.sum_stride));
  std::fill_n(task.totals, group, 0.0f);
  std::fill_n(task.sums, floats, 0.0f);
  bodies_.attend_pages[code_width_index(bits)](task);
}

// The block's last page if it is not sealed, by weights in f32; `partials` of its query heads.
void LowBitBlocks::attend_tail(Work& work, int head, float* partials, int64_t stride) const {
  const LowBitPages& low_bit = params_.low_bit_pages;
  const int dims = layout_.values.dims;
  const int first = head * layout_.gqa_group;
  const auto page_of = [&](int q) {
    return low_bit.at(work.first_query + q) + work.first + work.count - 1;
  };
  const auto* stored = reinterpret_cast<const uint16_t*>(  // [dims / 2][64 tokens][2], bf16
      work.sequence->tail + layout_.value_tail_offset(params_.step.layer, work.heads.begin + head));
  thread_local std::vector<float> value;
  value.resize(static_cast<size_t>(dims));
  const int tokens = (work.sequence->end() - 1) % kPageTokens + 1;
  for (int t = 0; t < tokens; ++t) {
    bool is_read = false;
    for (int h = 0; h < layout_.gqa_group; ++h) {
      const int64_t page = page_of(first + h);
      const int16_t code = low_bit.scores[page * kPageTokens + t];
      if (code == kNoScoreCode || low_bit.maxima[page] == minus_infinity()) continue;
      for (int d = 0; d < dims && !is_read; ++d) {
        value[static_cast<size_t>(d)] =
            f32_from_bf16(stored[(d / 2 * kPageTokens + t) * 2 + d % 2]);
      }
      is_read = true;
      const float score = low_bit.maxima[page] + static_cast<float>(code) * (1 / kScoreUnits);
      const float weight = std::exp(score - work.tops.data()[h]);
      float* partial = partials + h * stride;
      partial[1] += weight;
      for (int d = 0; d < dims; ++d) {
        partial[kSoftmaxHeader + d] += weight * value[static_cast<size_t>(d)];
      }
    }
  }
}

}  // namespace fasa::cpu
