#include "kernels/cpu/select/select_head.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace fasa::cpu {
namespace {

constexpr int kSampledPages = 128;    // approximate maximum
constexpr int kKeepAllTokens = 1024;  // up to here every token is a candidate
constexpr int32_t kRoom = 4096;       // minimum candidates per part

// Stride of the ranked pages. Denser in short contexts, where the rank would be a rough estimate.
int sample_stride(const SelectPlan& plan) {
  const int pages = (plan.end - 1) / kPageTokens - plan.first / kPageTokens + 1;
  if (plan.visible() <= kKeepAllTokens || plan.ranked() * 4 >= plan.visible()) return 0;
  return std::max(std::clamp(pages / 16, 2, 16), pages / kSampledPages);
}

// Several times the budget's rank in the sample, plus its noise. The sample underestimates the
// maxima of some query heads more than those of others; the bounds of these heads are then too low,
// and the candidates above the other heads' bounds must suffice, or a second pass is needed. That
// doubles a head's time, while a candidate costs little. Rescans of 8 heads of four Gaussian
// queries, 128k tokens, budget 256, by factor: 4: 2 to 3, 8: 1, 12: 0 to 0.25, 16: 0.
//
// Tried for sets of 256 and low-bit sets, whose candidates are three to four times as many, and no
// faster (128k tokens, Zen 4, medians of pairs): half the share of candidates takes 2.51 ms in
// place of 2.62 with 512 low-bit tokens, and with 1024, where heads are rescanned, 3.38 in place of
// 2.79. Bounds raised while pages are scanned, by maxima that the sample missed, leave 9,700
// candidates of 13,000 and have six times as many heads rescanned: it is the low bounds that make
// the others' candidates suffice. More sampled pages change nothing below 262144 tokens, where
// every 16th is. Where rescans are split over the threads, one thread, 0.05 in place of 0.08 (two
// runs of bench/low_bit_set_cost, other work beside them): 128 + 512 takes 1.11 and 1.14 of what
// 256 does in place of 1.13 and 1.18, 320 + 1024 takes 1.24 and 1.28 in place of 1.20 and 1.27.
int32_t sample_rank(double share, const SelectPlan& plan) {
  constexpr double kCandidates = 0.08;  // maximum share of competing tokens
  const double competing = plan.recent_begin - plan.sinks_end;
  const double factor = std::clamp(kCandidates * competing / plan.ranked(), 4.0, 12.0);
  const double expected = share * plan.ranked();
  return static_cast<int32_t>(std::ceil(factor * expected + 3 * std::sqrt(expected) + 4));
}

// Candidates from which the best are taken, by ascending position: their keys, and their indices in
// their part. One per thread, for all heads in turn; grows only.
struct Contenders {
  ScratchArray<int32_t> keys;
  ScratchArray<int32_t> places;

  void reserve(int32_t count) {
    keys.reserve(static_cast<size_t>(count) + kCandidateSlack);
    places.reserve(static_cast<size_t>(count) + kCandidateSlack);
  }
};

Contenders& contenders_of_thread() {
  thread_local Contenders contenders;
  return contenders;
}

}  // namespace

void HeadPart::begin(const SelectParams& params, int sequence, int kv_head,
                     const ScoreBodies& bodies, int begin_page, int end_page,
                     size_t sampled_pages) {
  bodies_ = &bodies;
  layout_ = params.step.layout;
  plan_ = plan_selection(params, params.step.sequences[sequence]);
  scorer_.begin(params, sequence, kv_head, plan_.first, bodies);
  begin_page_ = begin_page;
  end_page_ = end_page;
  low_bit_pages_ = LowBitPagesOut::of(params, sequence, kv_head, plan_);
  stride_ = sample_stride(plan_);
  overflow_ = false;
  rescans_ = false;
  sampled_.clear();
  const auto heads = static_cast<size_t>(scorer_.heads());
  bounds_.assign(heads, kLowestScore);
  maxima_.assign(heads, kLowestScore);
  const int32_t room =
      std::min(std::max(kRoom, 16 * plan_.ranked()), (end_page - begin_page) * kPageTokens) +
      kPageTokens;
  const size_t stored = static_cast<size_t>(room) + kCandidateSlack;
  candidates_ = {arrays_.positions.reserve(stored), arrays_.raw.reserve(stored * heads), room, 0,
                 scorer_.heads()};
  arrays_.keys.reserve(stored);
  arrays_.samples.reserve(sampled_pages * heads * kPageTokens);
  next_sample_ = 0;
}

uint64_t HeadPart::competing(int page) const {
  const int start = page * kPageTokens;
  uint64_t tokens = ~uint64_t{0};
  if (plan_.sinks_end > start) {
    if (plan_.sinks_end >= start + kPageTokens) return 0;
    tokens <<= plan_.sinks_end - start;
  }
  if (plan_.recent_begin < start + kPageTokens) {
    if (plan_.recent_begin <= start) return 0;
    tokens &= ~uint64_t{0} >> (start + kPageTokens - plan_.recent_begin);
  }
  return tokens;
}

void HeadPart::list_sample(const SelectPlan& plan, int begin_page, int end_page,
                           std::vector<int>* pages) {
  pages->clear();
  const int stride = sample_stride(plan);
  if (stride == 0) return;
  const int first = plan.first / kPageTokens;
  const int newest = (plan.end - 1) / kPageTokens - 1;
  int ranked = begin_page / stride * stride + stride / 2;
  if (ranked < begin_page) ranked += stride;
  for (int page = begin_page; page < end_page; ++page) {
    const bool is_ranked = page == ranked;
    if (is_ranked) ranked += stride;
    if (is_ranked || page == first || page >= newest) pages->push_back(page);
  }
}

void HeadPart::sample_page(int page, const std::byte* ahead, PageScratch* scratch) {
  const int heads = scorer_.heads();
  float* scores = sample_scores(sampled_.size());
  sampled_.push_back(
      {page, scorer_.score(page, ahead, scratch, scores), page % stride_ == stride_ / 2});
  bodies_->raise_maxima(scores, kPageTokens, heads, kPageTokens, maxima_.data());
}

void HeadPart::scan_page(int page, const std::byte* ahead, PageScratch* scratch) {
  float* scores = scratch->scores();
  uint64_t mask = 0;
  if (next_sample_ < sampled_.size() && sampled_[next_sample_].page == page) {
    scores = sample_scores(next_sample_);
    mask = sampled_[next_sample_++].visible;
  } else {
    mask = scorer_.score(page, ahead, scratch, scores);
  }
  if (low_bit_pages_.scores != nullptr) low_bit_pages_.write(*bodies_, page, scores);
  if (!keeps_everything()) mask &= bodies_->filter(scores, scorer_.heads(), bounds_.data());
  if (mask != 0) take(scores, mask, page);
  nan_scores_ = scorer_.nan_scores();
}

void HeadPart::take(const float* scores, uint64_t mask, int page) {
  if (candidates_.count + kPageTokens <= candidates_.capacity) {
    bodies_->append(scores, mask, page * kPageTokens, &candidates_);
    return;
  }
  overflow_ = true;
  bodies_->raise_maxima(scores, kPageTokens, scorer_.heads(), kPageTokens, maxima_.data());
}

void HeadPart::begin_rescan(std::span<const float> maxima, int32_t floor) {
  rescans_ = true;
  std::copy(maxima.begin(), maxima.end(), maxima_.begin());
  candidates_.count = 0;
  raise_floor(floor);
}

void HeadPart::raise_floor(int32_t floor) {
  has_floor_ = value_of_key(floor) >= kLowestScore;
  if (!has_floor_) return;
  for (size_t h = 0; h < maxima_.size(); ++h) bounds_[h] = bound_of_floor(floor, maxima_[h]);
}

void HeadPart::rescan_page(int page, const std::byte* ahead, PageScratch* scratch) {
  float* scores = scratch->scores();
  uint64_t mask = scorer_.score(page, ahead, scratch, scores) & competing(page);
  if (has_floor_) mask &= bodies_->filter(scores, scorer_.heads(), bounds_.data());
  if (mask == 0) return;
  if (candidates_.count + kPageTokens > candidates_.capacity) prune();
  bodies_->append(scores, mask, page * kPageTokens, &candidates_);
}

// Positions ascend, so a later token with the last kept key loses to those here.
void HeadPart::prune() {
  find_keys();
  int32_t* keys = arrays_.keys.data();
  const auto at_least = [&](int32_t key) {
    return bodies_->count_at_least(keys, candidates_.count, key);
  };
  const int32_t rank = plan_.ranked();
  const int32_t last = key_of_rank(rank, rank, INT_MIN, at_least);
  RankCut cut = {last, rank - at_least(last + 1)};
  int32_t kept = 0;
  for (int32_t i = 0; i < candidates_.count; ++i) {
    if (!cut.takes(keys[i])) continue;
    candidates_.positions[kept] = candidates_.positions[i];
    for (int64_t h = 0; h < candidates_.heads; ++h) {
      float* raw = candidates_.raw + h * candidates_.capacity;
      raw[kept] = raw[i];
    }
    ++kept;
  }
  candidates_.count = kept;
  raise_floor(last + 1);
}

void HeadPart::find_keys() {
  bodies_->relative_keys(candidates_.raw, candidates_.capacity, candidates_.heads,
                         candidates_.count, maxima_.data(), arrays_.keys.data());
}

void HeadPart::find_competing() {
  const int32_t* begin = candidates_.positions;
  const int32_t* end = begin + candidates_.count;
  competing_.first = static_cast<int32_t>(std::lower_bound(begin, end, plan_.sinks_end) - begin);
  competing_.end = static_cast<int32_t>(std::lower_bound(begin, end, plan_.recent_begin) - begin);
}

std::vector<float>& HeadSelection::gather_maxima() {
  std::vector<float>& maxima = front().head_maxima_;
  maxima = front().maxima_;
  for (const HeadPart* part : parts_) {
    for (size_t h = 0; h < maxima.size(); ++h) maxima[h] = std::max(maxima[h], part->maxima_[h]);
  }
  return maxima;
}

void HeadSelection::set_bounds() {
  HeadPart& head = front();
  if (head.keeps_everything()) return;
  const std::vector<float>& maxima = gather_maxima();
  int64_t competing = 0;
  const int heads = head.scorer_.heads();
  for (HeadPart* part : parts_) {
    int32_t* keys = part->arrays_.sample_keys.reserve(part->sampled_.size() * kPageTokens);
    for (size_t i = 0; i < part->sampled_.size(); ++i, keys += kPageTokens) {
      const HeadPart::SampledPage& sampled = part->sampled_[i];
      part->bodies_->relative_keys(part->sample_scores(i), kPageTokens, heads, kPageTokens,
                                   maxima.data(), keys);
      const uint64_t counted = sampled.ranked ? sampled.visible & part->competing(sampled.page) : 0;
      competing += std::popcount(counted);
      if (counted == ~uint64_t{0}) continue;
      for (int t = 0; t < kPageTokens; ++t) {
        if ((counted >> t & 1) == 0) keys[t] = INT_MIN;
      }
    }
  }
  const double share =
      static_cast<double>(competing) / (head.plan_.recent_begin - head.plan_.sinks_end);
  const int32_t rank = sample_rank(share, head.plan_);
  const int32_t key = key_of_rank(rank, rank + rank / 4, INT_MIN, [&](int32_t bound) {
    int32_t count = 0;
    for (HeadPart* part : parts_) {
      count += part->bodies_->count_at_least(
          part->arrays_.sample_keys.data(),
          static_cast<int32_t>(part->sampled_.size()) * kPageTokens, bound);
    }
    return count;
  });
  const float threshold = value_of_key(key);
  for (HeadPart* part : parts_) {
    for (size_t h = 0; h < maxima.size(); ++h) {
      // Below the lowest float, or a NaN key: excludes only -inf.
      const float bound = threshold + maxima[h];
      part->bounds_[h] = bound >= kLowestScore ? bound : kLowestScore;
    }
  }
}

int32_t HeadSelection::count_at_least(int32_t key) const {
  int32_t count = 0;
  for (HeadPart* part : parts_) {
    count += part->bodies_->count_at_least(part->arrays_.keys.data() + part->competing_.first,
                                           part->competing_.end - part->competing_.first, key);
  }
  return count;
}

// No token outside the candidates has a greater key.
int32_t HeadSelection::greatest_lost_key() const {
  const std::vector<float>& maxima = front().head_maxima_;
  int32_t greatest = INT_MIN;
  for (const HeadPart* part : parts_) {
    if (part->overflow_) return INT_MAX;
    if (part->keeps_everything()) continue;
    for (size_t h = 0; h < maxima.size(); ++h) {
      greatest = std::max(greatest, key_of_value(part->bounds_[h] - maxima[h]));
    }
  }
  return greatest;
}

std::optional<int32_t> HeadSelection::finish(int32_t* set, const NextBestOut& others) {
  std::vector<float>& maxima = gather_maxima();
  for (const HeadPart* part : parts_) {
    const Candidates& candidates = part->candidates_;
    part->bodies_->raise_maxima(candidates.raw, candidates.capacity, candidates.heads,
                                candidates.count, maxima.data());
  }
  const int32_t lost = greatest_lost_key();
  for (HeadPart* part : parts_) std::copy(maxima.begin(), maxima.end(), part->maxima_.begin());
  find_keys();
  const int32_t ranked = front().plan_.ranked();
  if (lost < INT_MAX) {
    const int32_t least = lost == INT_MIN ? INT_MIN : lost + 1;
    if (count_at_least(least) >= ranked) return write(least, set, others);
  }
  const int32_t floor =
      count_at_least(INT_MIN) < ranked
          ? INT_MIN
          : key_of_rank(ranked, ranked, INT_MIN, [&](int32_t key) { return count_at_least(key); });
  for (HeadPart* part : parts_) part->begin_rescan(maxima, floor);
  return std::nullopt;
}

int32_t HeadSelection::finish_rescan(int32_t* set, const NextBestOut& others) {
  find_keys();
  return write(INT_MIN, set, others);
}

void HeadSelection::find_keys() {
  for (HeadPart* part : parts_) {
    part->find_competing();
    part->find_keys();
  }
}

// Ranks are searched among few more tokens than are taken, while there may be ten times as many.
int32_t HeadSelection::gather(int32_t least) const {
  const int32_t rank = front().plan_.ranked();
  const int32_t key = key_of_rank(rank, rank + rank / 4, least,
                                  [&](int32_t bound) { return count_at_least(bound); });
  Contenders& contenders = contenders_of_thread();
  contenders.reserve(count_at_least(key));
  int32_t gathered = 0;
  for (HeadPart* part : parts_) {
    part->competing_.first_gathered = gathered;
    gathered += part->bodies_->find_at_least(
        part->arrays_.keys.data(), part->competing_.first, part->competing_.end, key,
        contenders.keys.data() + gathered, contenders.places.data() + gathered);
  }
  return gathered;
}

// The cut behind the best `rank` contenders.
RankCut HeadSelection::cut_of(int32_t rank, int32_t gathered) const {
  const int32_t* keys = contenders_of_thread().keys.data();
  const auto at_least = [&](int32_t key) {
    return front().bodies_->count_at_least(keys, gathered, key);
  };
  const int32_t last = key_of_rank(rank, rank, INT_MIN, at_least);
  return {last, rank - at_least(last + 1)};
}

// Calls visit(key, candidates of its part, its index there) for the contenders that `cut` takes, in
// order of position.
template <typename Visit>
void HeadSelection::visit_contenders(RankCut cut, int32_t gathered, const Visit& visit) const {
  Contenders& contenders = contenders_of_thread();
  for (size_t p = 0; p < parts_.size(); ++p) {
    const int32_t end = p + 1 < parts_.size() ? parts_[p + 1]->competing_.first_gathered : gathered;
    for (int32_t i = parts_[p]->competing_.first_gathered; i < end; ++i) {
      const int32_t key = contenders.keys.data()[i];
      if (cut.takes(key)) visit(key, parts_[p]->candidates_, contenders.places.data()[i]);
    }
  }
}

int32_t HeadSelection::write(int32_t least, int32_t* set, const NextBestOut& others) const {
  const SelectPlan& plan = front().plan_;
  const int32_t gathered = gather(least);
  const RankCut set_cut = cut_of(plan.need, gathered);
  RankCut in_set = set_cut;
  const RankCut in_both = plan.in_both() == plan.need ? set_cut : cut_of(plan.in_both(), gathered);
  const LowBitOut& low_bit = others.low_bit;
  int32_t* next = low_bit.positions;
  int32_t* out = set + (plan.sinks_end - plan.first);
  std::iota(set, out, plan.first);
  visit_contenders(in_both, gathered, [&](int32_t key, const Candidates& from, int32_t place) {
    if (in_set.takes(key)) {
      *out++ = from.positions[place];
      return;
    }
    for (int64_t h = 0; h < from.heads; ++h) {
      low_bit.scores[h * low_bit.stride + (next - low_bit.positions)] =
          from.raw[h * from.capacity + place];
    }
    *next++ = from.positions[place];
  });
  if (low_bit.size != nullptr) *low_bit.size = static_cast<int32_t>(next - low_bit.positions);
  if (others.runners_up.size != nullptr) write_runners_up(set_cut, gathered, others.runners_up);
  for (int position = plan.recent_begin; position < plan.end; ++position) *out++ = position;
  return static_cast<int32_t>(out - set);
}

// The contenders behind the set, best first.
void HeadSelection::write_runners_up(RankCut in_set, int32_t gathered,
                                     const RunnersUpOut& out) const {
  const SelectPlan& plan = front().plan_;
  thread_local std::vector<std::pair<int64_t, int32_t>> ranked;  // negated keys and positions
  ranked.clear();
  visit_contenders(cut_of(plan.need + plan.runners_up, gathered), gathered,
                   [&](int32_t key, const Candidates& from, int32_t place) {
                     if (in_set.takes(key)) return;
                     ranked.emplace_back(-int64_t{key}, from.positions[place]);
                   });
  std::ranges::sort(ranked);
  for (size_t i = 0; i < ranked.size(); ++i) out.positions[i] = ranked[i].second;
  *out.size = static_cast<int32_t>(ranked.size());
}

LowBitOut LowBitOut::of(const SelectParams& params, int64_t sequence, int kv_head) {
  const LowBitSet& low_bit = params.low_bit;
  if (low_bit.capacity == 0) return {};
  const CacheLayout& layout = params.step.layout;
  const int64_t head = sequence * layout.kv_heads + kv_head;
  return {low_bit.positions + head * low_bit.capacity, low_bit.sizes + head,
          low_bit.scores + head * layout.gqa_group * low_bit.capacity, low_bit.capacity};
}

RunnersUpOut RunnersUpOut::of(const SelectParams& params, int64_t sequence, int kv_head) {
  const RunnersUp& runners_up = params.runners_up;
  if (runners_up.capacity == 0) return {};
  const int64_t head = sequence * params.step.layout.kv_heads + kv_head;
  return {runners_up.positions + head * runners_up.capacity, runners_up.sizes + head};
}

LowBitPagesOut LowBitPagesOut::of(const SelectParams& params, int64_t sequence, int kv_head,
                                  const SelectPlan& plan) {
  const LowBitPages& pages = params.low_bit_pages;
  if (pages.capacity == 0) return {};
  const CacheLayout& layout = params.step.layout;
  const int64_t first = pages.at(sequence * layout.query_heads() + kv_head * layout.gqa_group);
  return {.scale = pages.scale,
          .heads = layout.gqa_group,
          .first_page = plan.first_page(),
          .capacity = pages.capacity,
          .maxima = pages.maxima + first,
          .scores = pages.scores + first * kPageTokens};
}

void LowBitPagesOut::write(const ScoreBodies& bodies, int page, const float* of_page) const {
  for (int h = 0; h < heads; ++h, of_page += kPageTokens) {
    const int64_t at = h * capacity + page - first_page;
    // Two pages ahead: more streams than the processor follows by itself.
    int16_t* ahead = scores + (at + 2) * kPageTokens;
    __builtin_prefetch(ahead, 1);
    __builtin_prefetch(ahead + kPageTokens / 2, 1);
    maxima[at] = bodies.code_scores(of_page, scale, scores + at * kPageTokens);
  }
}

void LowBitPagesOut::take_out(const ScoreBodies& bodies, const int32_t* set, int32_t size) const {
  constexpr int32_t kAhead = 8;  // tokens
  const auto place = [&](int page, int h) { return h * capacity + page - first_page; };
  for (int32_t i = 0; i < size;) {
    const int page = set[i] / kPageTokens;
    const int next = set[std::min(i + kAhead, size - 1)] / kPageTokens;
    for (int h = 0; h < heads; ++h) {
      const int64_t at = place(next, h);
      __builtin_prefetch(scores + at * kPageTokens, 1);
      __builtin_prefetch(scores + at * kPageTokens + 32, 1);
      __builtin_prefetch(maxima + at, 1);
    }
    uint64_t taken = 0;
    for (; i < size && set[i] / kPageTokens == page; ++i) {
      taken |= uint64_t{1} << set[i] % kPageTokens;
    }
    for (int h = 0; h < heads; ++h) {
      const int64_t at = place(page, h);
      maxima[at] = bodies.take_out(taken, maxima[at], scores + at * kPageTokens);
    }
  }
}

int32_t write_all(const SelectPlan& plan, int32_t* set) {
  std::iota(set, set + plan.visible(), plan.first);
  return plan.visible();
}

}  // namespace fasa::cpu
