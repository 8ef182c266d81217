#include "kernels/cpu/select/select_range.h"

#include <numeric>

namespace fasa::cpu {
namespace {

// Prefetch distance, in slices of heads.
constexpr size_t kAhead = 2;

}  // namespace

void SelectRange::begin(const SelectParams& params, int sequence, const SelectPlan& plan,
                        const ScoreBodies& bodies, int begin_page, int end_page) {
  pages_.resize(static_cast<size_t>(end_page - begin_page));
  std::iota(pages_.begin(), pages_.end(), begin_page);
  HeadPart::list_sample(plan, begin_page, end_page, &sampled_);
  scratch_.begin(params.step.layout);
  kv_heads_ = static_cast<size_t>(params.step.head_count());
  if (heads_.size() < kv_heads_) heads_.resize(kv_heads_);
  for (size_t h = 0; h < kv_heads_; ++h) {
    heads_[h].begin(params, sequence, params.step.first_head() + static_cast<int>(h), bodies,
                    begin_page, end_page, sampled_.size());
  }
}

// Calls work(head, page, ahead) for each page and head, in memory order.
template <typename Work>
void SelectRange::visit(const std::vector<int>& pages, const Work& work) {
  for (size_t i = 0; i < pages.size(); ++i) {
    for (size_t h = 0; h < kv_heads_; ++h) {
      const size_t next = i * kv_heads_ + h + kAhead;
      const size_t next_page = next / kv_heads_;
      const std::byte* ahead = next_page < pages.size()
                                   ? heads_[next % kv_heads_].scorer().ahead(pages[next_page])
                                   : nullptr;
      work(heads_[h], pages[i], ahead);
    }
  }
}

void SelectRange::sample() {
  visit(sampled_, [this](HeadPart& head, int page, const std::byte* ahead) {
    head.sample_page(page, ahead, &scratch_);
  });
}

void SelectRange::scan() {
  visit(pages_, [this](HeadPart& head, int page, const std::byte* ahead) {
    head.scan_page(page, ahead, &scratch_);
  });
}

void SelectRange::rescan() {
  for (size_t h = 0; h < kv_heads_; ++h) {
    HeadPart& head = heads_[h];
    if (!head.rescans()) continue;
    for (size_t i = 0; i < pages_.size(); ++i) {
      const bool last = i + 1 == pages_.size();
      head.rescan_page(pages_[i], last ? nullptr : head.scorer().ahead(pages_[i + 1]), &scratch_);
    }
  }
}

uint64_t SelectRange::bytes_read() const {
  return std::accumulate(
      heads_.begin(), heads_.begin() + static_cast<int64_t>(kv_heads_), uint64_t{0},
      [](uint64_t sum, const HeadPart& part) { return sum + part.bytes_read(); });
}

uint64_t SelectRange::nan_scores() const {
  return std::accumulate(
      heads_.begin(), heads_.begin() + static_cast<int64_t>(kv_heads_), uint64_t{0},
      [](uint64_t sum, const HeadPart& part) { return sum + part.nan_scores(); });
}

}  // namespace fasa::cpu
