#include "offload/store/disk_store.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace fasa {
namespace {

class DiskRows final : public SequenceRows {
 public:
  DiskRows(BlockPool& pool, const LayerGroup& group) : SequenceRows(pool, group) {}

  RowView view() const override {
    return {.blocks = blocks(), .copies = {}, .pending = pending_.get(), .pending_pages = count_};
  }
  void attach(std::shared_ptr<PendingPages> pending, int64_t pages) override {
    pending_ = std::move(pending);
    count_ = pages;
  }
  void load(int64_t first, int64_t end) override;
  bool load_more(size_t max_bytes) override;

  void share(const SequenceRows& parent, int64_t tokens) override {
    SequenceRows::share(parent, tokens);
    pending_ = static_cast<const DiskRows&>(parent).pending_;  // the same store opened it
    count_ = static_cast<const DiskRows&>(parent).count_;
    shorten(tokens);
  }
  void truncate(int64_t tokens) override {
    SequenceRows::truncate(tokens);
    shorten(tokens);
  }
  int64_t droppable(int64_t oldest) const override {
    return pending_ != nullptr ? 0 : SequenceRows::droppable(oldest);
  }

 private:
  // The last page has all its rows: tails are made from it, and tokens are written to it.
  void shorten(int64_t tokens) {
    count_ = std::min(count_, std::max<int64_t>(0, pages_of(tokens) - 1));
    if (count_ == 0) pending_.reset();
  }

  std::shared_ptr<PendingPages> pending_;  // null: all rows are in memory
  int64_t count_ = 0;                      // pages
};

void DiskRows::load(int64_t first, int64_t end) {
  if (pending_ == nullptr) return;
  std::vector<RowBytes> wanted;
  for (int64_t page = std::max<int64_t>(first, 0); page < std::min(end, count_); ++page) {
    wanted.push_back({page, 0, group().layout.row_block_bytes()});
  }
  pending_->load(wanted, blocks());
}

bool DiskRows::load_more(size_t max_bytes) {
  if (pending_ == nullptr) return true;
  if (!pending_->load_more(count_, max_bytes, blocks())) return false;
  pending_.reset();
  count_ = 0;
  return true;
}

bool may_lack_rows(const RowCall& call, size_t sequence) {
  return call.rows[sequence].pending != nullptr &&
         call.sequences[sequence].mode == StepMode::kDecode;
}

}  // namespace

std::unique_ptr<SequenceRows> DiskStore::open() {
  return std::make_unique<DiskRows>(pool_, group_);
}

void DiskTransfers::load_sets(const RowCall& call, const TokenSets& sets) {
  const CacheLayout& layout = call.params.layout;
  for (size_t i = 0; i < call.sequences.size(); ++i) {
    if (!may_lack_rows(call, i)) continue;
    const RowView& rows = call.rows[i];
    wanted_.clear();
    for (int head = 0; head < layout.kv_heads; ++head) {
      const int64_t index = static_cast<int64_t>(i) * layout.kv_heads + head;
      const int32_t* set = sets.positions + index * sets.capacity;
      for (const int32_t position : std::span(set, static_cast<size_t>(sets.sizes[index]))) {
        const int64_t page = position / kPageTokens;
        if (page >= rows.pending_pages) continue;
        wanted_.push_back(
            {page, call.row_offset(head, position % kPageTokens), layout.row.bytes()});
      }
    }
    rows.pending->load(wanted_, rows.blocks);
  }
}

void DiskTransfers::load_visible(const RowCall& call) {
  for (size_t i = 0; i < call.sequences.size(); ++i) {
    if (!may_lack_rows(call, i)) continue;
    const RowView& rows = call.rows[i];
    const int32_t first = first_visible(call.sequences[i].start, call.window);
    wanted_.clear();
    for (int64_t page = first / kPageTokens; page < rows.pending_pages; ++page) {
      wanted_.push_back({page, call.row_offset(0, 0), call.params.layout.row_layer_bytes()});
    }
    rows.pending->load(wanted_, rows.blocks);
  }
}

}  // namespace fasa
