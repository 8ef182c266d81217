#include "kernels/cpu/select_head.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <limits>
#include <numeric>

namespace fasa::cpu {
namespace {

constexpr int kSampledPages = 128;    // at most, about
constexpr int kKeepAllTokens = 1024;  // up to here every token survives
constexpr int32_t kRoom = 4096;       // survivors of a part, at least
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Every which page is ranked. Denser in short contexts, where the rank would be a guess.
int sample_stride(const SelectPlan& plan) {
  const int pages = (plan.end - 1) / kPageTokens - plan.first / kPageTokens + 1;
  if (plan.visible() <= kKeepAllTokens || plan.ranked() * 4 >= plan.visible()) return 0;
  return std::max(std::clamp(pages / 16, 2, 16), pages / kSampledPages);
}

// Several times the rank that the budget has in a sample, and its noise. The sample misses the
// maxima of some query heads by more than those of others; the bounds of the former are then too
// low, and what survives above the others' must suffice, or a second pass is needed. That doubles a
// head's time, a survivor costs little. Rescans of 8 heads of four Gaussian queries, 128k tokens,
// budget 256, by factor: 4: 2 to 3, 8: 1, 12: 0 to 0.25, 16: 0.
//
// Tried for sets of 256 and near sets, whose survivors are three to four times as many, and no
// faster (128k tokens, Zen 4, medians of pairs): half the share of survivors takes 2.51 ms in place
// of 2.62 with 512 near tokens, and with 1024, where heads are rescanned, 3.38 in place of 2.79.
// Bounds raised while pages are scanned, by maxima that the sample missed, leave 9,700 survivors of
// 13,000 and have six times as many heads rescanned: it is the low bounds that make the others'
// survivors suffice. More sampled pages change nothing below 262144 tokens, where every 16th is.
// What a rescan costs is that one thread makes it: about 1 ms of a layer.
int32_t sample_rank(double share, const SelectPlan& plan) {
  constexpr double kSurvivors = 0.08;  // of all that compete: beyond that they are no few
  const double competing = plan.recent_begin - plan.sinks_end;
  const double factor = std::clamp(kSurvivors * competing / plan.ranked(), 4.0, 12.0);
  const double expected = share * plan.ranked();
  return static_cast<int32_t>(std::ceil(factor * expected + 3 * std::sqrt(expected) + 4));
}

float value_of_key(int32_t key) { return std::bit_cast<float>(key ^ ((key >> 31) & 0x7fffffff)); }
int32_t key_of_value(float value) {
  const int32_t bits = std::bit_cast<int32_t>(value);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

// A key that at least `rank`, and no more than `enough` if that can be told apart, reach; keys are
// at most 0, relative scores never being positive.
template <typename CountAtLeast>
int32_t key_of_rank(int32_t rank, int32_t enough, const CountAtLeast& count_at_least) {
  int64_t reached = INT_MIN;
  int64_t missed = 1;
  while (missed - reached > 1) {
    const int64_t middle = reached + (missed - reached) / 2;
    const int32_t count = count_at_least(static_cast<int32_t>(middle));
    if (count < rank) {
      missed = middle;
    } else {
      reached = middle;
      if (count <= enough) break;
    }
  }
  return static_cast<int32_t>(reached);
}

// The best so many by (key, lower position), asked in rising order of positions: keys above `last`,
// and the first `ties` equal to it.
struct RankCut {
  int32_t last = 0;
  int32_t ties = 0;

  bool takes(int32_t key) { return key > last || (key == last && ties-- > 0); }
};

// The candidates of a rescan: pruned exactly whenever the room is used up. Positions rise, so a
// later token that equals the last one kept loses.
class PrunedCandidates {
 public:
  PrunedCandidates(const ScoreBodies& bodies, int32_t need, int32_t floor)
      : bodies_(bodies), need_(need), room_(2 * need + 4096), floor_(floor) {}

  void add(int32_t position, int32_t key) {
    if (key < floor_) return;
    positions_.push_back(position);
    keys_.push_back(key);
    if (static_cast<int32_t>(keys_.size()) >= room_) prune();
  }
  const std::vector<int32_t>& finish() {
    if (static_cast<int32_t>(keys_.size()) > need_) prune();
    return positions_;
  }
  // After finish(): which of them are the best `count`.
  std::vector<bool> best(int32_t count) const {
    std::vector<bool> taken(keys_.size());
    const auto all = static_cast<int32_t>(keys_.size());
    const auto at_least = [&](int32_t key) {
      return bodies_.count_at_least(keys_.data(), all, key);
    };
    RankCut cut = {key_of_rank(count, count, at_least), 0};
    cut.ties = count - at_least(cut.last + 1);
    for (size_t i = 0; i < keys_.size(); ++i) taken[i] = cut.takes(keys_[i]);
    return taken;
  }

 private:
  void prune() {
    const auto count = static_cast<int32_t>(keys_.size());
    const auto at_least = [&](int32_t key) {
      return bodies_.count_at_least(keys_.data(), count, key);
    };
    const int32_t last = key_of_rank(need_, need_, at_least);
    const int32_t reaching = at_least(last);
    // Where `last` is reached by exactly `need_`, it need not be a key that occurs.
    int32_t ties = reaching == need_ ? INT_MAX : need_ - at_least(last + 1);
    size_t kept = 0;
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] < last || (keys_[i] == last && ties-- <= 0)) continue;
      positions_[kept] = positions_[i];
      keys_[kept++] = keys_[i];
    }
    positions_.resize(kept);
    keys_.resize(kept);
    floor_ = last + 1;
  }

  const ScoreBodies& bodies_;
  int32_t need_;
  int32_t room_;
  int32_t floor_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> keys_;
};

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
  stride_ = sample_stride(plan_);
  overflow_ = false;
  sampled_.clear();
  const auto heads = static_cast<size_t>(scorer_.heads());
  bounds_.assign(heads, kLowest);
  maxima_.assign(heads, kLowest);
  const int32_t room =
      std::min(std::max(kRoom, 16 * plan_.ranked()), (end_page - begin_page) * kPageTokens) +
      kPageTokens;
  const size_t stored = static_cast<size_t>(room) + kSurvivorSlack;
  survivors_ = {positions_.reserve(stored), raw_.reserve(stored * heads), room, 0, scorer_.heads()};
  keys_.reserve(stored);
  samples_.reserve(sampled_pages * heads * kPageTokens);
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
  if (!keeps_everything()) mask &= bodies_->filter(scores, scorer_.heads(), bounds_.data());
  if (mask != 0) take(scores, mask, page);
  nan_scores_ = scorer_.nan_scores();
}

void HeadPart::take(const float* scores, uint64_t mask, int page) {
  if (survivors_.count + kPageTokens <= survivors_.capacity) {
    bodies_->append(scores, mask, page * kPageTokens, &survivors_);
    return;
  }
  overflow_ = true;
  bodies_->raise_maxima(scores, kPageTokens, scorer_.heads(), kPageTokens, maxima_.data());
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
    int32_t* keys = part->sample_keys_.reserve(part->sampled_.size() * kPageTokens);
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
  const int32_t key = key_of_rank(rank, rank + rank / 4, [&](int32_t bound) {
    int32_t count = 0;
    for (HeadPart* part : parts_) {
      count += part->bodies_->count_at_least(
          part->sample_keys_.data(), static_cast<int32_t>(part->sampled_.size()) * kPageTokens,
          bound);
    }
    return count;
  });
  const float threshold = value_of_key(key);
  for (HeadPart* part : parts_) {
    for (size_t h = 0; h < maxima.size(); ++h) {
      // Below the lowest float, or of a key that is no number: nothing is left out but -inf.
      const float bound = threshold + maxima[h];
      part->bounds_[h] = bound >= kLowest ? bound : kLowest;
    }
  }
}

int32_t HeadSelection::count_at_least(int32_t key) const {
  int32_t count = 0;
  for (HeadPart* part : parts_) {
    count += part->bodies_->count_at_least(part->keys_.data() + part->first_competing_,
                                           part->end_competing_ - part->first_competing_, key);
  }
  return count;
}

// No token that did not survive has a greater key.
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

int32_t HeadSelection::finish(int32_t* set, const NearOut& near) {
  const SelectPlan& plan = front().plan_;
  std::vector<float>& maxima = gather_maxima();
  for (HeadPart* part : parts_) {
    const Survivors& survivors = part->survivors_;
    part->bodies_->raise_maxima(survivors.raw, survivors.capacity, survivors.heads, survivors.count,
                                maxima.data());
  }
  for (HeadPart* part : parts_) {
    const Survivors& survivors = part->survivors_;
    int32_t* begin = survivors.positions;
    int32_t* end = begin + survivors.count;
    part->first_competing_ =
        static_cast<int32_t>(std::lower_bound(begin, end, plan.sinks_end) - begin);
    part->end_competing_ =
        static_cast<int32_t>(std::lower_bound(begin, end, plan.recent_begin) - begin);
    part->bodies_->relative_keys(survivors.raw, survivors.capacity, survivors.heads,
                                 survivors.count, maxima.data(), part->keys_.data());
  }
  if (count_at_least(INT_MIN) < plan.ranked()) return rescan(INT_MIN, set, near);
  const int32_t last = survivor_of_rank(plan.ranked());
  const int32_t lost = greatest_lost_key();
  const bool certain =
      lost == INT_MIN || (lost < INT_MAX && count_at_least(lost + 1) >= plan.ranked());
  return certain ? write(last, set, near) : rescan(last, set, near);
}

int32_t HeadSelection::survivor_of_rank(int32_t rank) const {
  return key_of_rank(rank, rank, [&](int32_t key) { return count_at_least(key); });
}

int32_t HeadSelection::write(int32_t last, int32_t* set, const NearOut& near) {
  const SelectPlan& plan = front().plan_;
  RankCut in_both = {last, plan.ranked() - count_at_least(last + 1)};
  RankCut in_set = in_both;
  if (plan.near > 0) {
    in_set.last = survivor_of_rank(plan.need);
    in_set.ties = plan.need - count_at_least(in_set.last + 1);
  }
  int32_t* out = set;
  int32_t* next = near.positions;
  for (int position = plan.first; position < plan.sinks_end; ++position) *out++ = position;
  for (HeadPart* part : parts_) {
    const Survivors& survivors = part->survivors_;
    for (int32_t i = part->first_competing_; i < part->end_competing_; ++i) {
      const int32_t key = part->keys_.data()[i];
      if (!in_both.takes(key)) continue;
      if (in_set.takes(key)) {
        *out++ = survivors.positions[i];
        continue;
      }
      for (int h = 0; h < survivors.heads; ++h) {
        near.scores[h * near.stride + (next - near.positions)] =
            survivors.raw[int64_t{h} * survivors.capacity + i];
      }
      *next++ = survivors.positions[i];
    }
  }
  if (near.size != nullptr) *near.size = static_cast<int32_t>(next - near.positions);
  for (int position = plan.recent_begin; position < plan.end; ++position) *out++ = position;
  return static_cast<int32_t>(out - set);
}

int32_t HeadSelection::rescan(int32_t floor, int32_t* set, const NearOut& near) {
  const SelectPlan& plan = front().plan_;
  PrunedCandidates candidates(*front().bodies_, plan.ranked(), floor);
  const std::vector<float>& maxima = front().head_maxima_;
  int32_t keys[kPageTokens];
  thread_local PageScratch scratch;  // grows only
  scratch.begin(front().layout_);
  for (HeadPart* part : parts_) {
    const int heads = part->scorer_.heads();
    float* scores = scratch.scores();
    for (int page = part->begin_page_; page < part->end_page_; ++page) {
      const std::byte* ahead = page + 1 < part->end_page_ ? part->scorer_.ahead(page + 1) : nullptr;
      uint64_t mask = part->scorer_.score(page, ahead, &scratch, scores);
      mask &= part->competing(page);
      part->bodies_->relative_keys(scores, kPageTokens, heads, kPageTokens, maxima.data(), keys);
      if (part->bodies_->count_at_least(keys, kPageTokens, floor) == 0) continue;
      for (; mask != 0; mask &= mask - 1) {
        const int token = std::countr_zero(mask);
        candidates.add(page * kPageTokens + token, keys[token]);
      }
    }
  }
  const std::vector<int32_t>& both = candidates.finish();
  int32_t* out = set;
  for (int position = plan.first; position < plan.sinks_end; ++position) *out++ = position;
  if (plan.near == 0) {
    out = std::copy(both.begin(), both.end(), out);
  } else {
    const std::vector<bool> chosen = candidates.best(plan.need);
    int32_t* next = near.positions;
    for (size_t i = 0; i < both.size(); ++i) *(chosen[i] ? out++ : next++) = both[i];
    *near.size = static_cast<int32_t>(next - near.positions);
    score_near(&scratch, near);
  }
  for (int position = plan.recent_begin; position < plan.end; ++position) *out++ = position;
  return static_cast<int32_t>(out - set);
}

// Pages are scored once more: a rescan is rare, and its scores are not kept.
void HeadSelection::score_near(PageScratch* scratch, const NearOut& near) const {
  int32_t i = 0;
  for (HeadPart* part : parts_) {
    while (i < *near.size && near.positions[i] < part->end_page_ * kPageTokens) {
      const int page = near.positions[i] / kPageTokens;
      part->scorer_.score(page, nullptr, scratch, scratch->scores());
      for (; i < *near.size && near.positions[i] / kPageTokens == page; ++i) {
        for (int h = 0; h < part->scorer_.heads(); ++h) {
          near.scores[h * near.stride + i] =
              scratch->scores()[h * kPageTokens + near.positions[i] % kPageTokens];
        }
      }
    }
  }
}

NearOut NearOut::of(const SelectParams& params, int64_t sequence, int kv_head) {
  const NearSet& near = params.near;
  if (near.capacity == 0) return {};
  const CacheLayout& layout = params.step.layout;
  const int64_t head = sequence * layout.kv_heads + kv_head;
  return {near.positions + head * near.capacity, near.sizes + head,
          near.scores + head * layout.group * near.capacity, near.capacity};
}

int32_t write_all(const SelectPlan& plan, int32_t* set) {
  std::iota(set, set + plan.visible(), plan.first);
  return plan.visible();
}

}  // namespace fasa::cpu
