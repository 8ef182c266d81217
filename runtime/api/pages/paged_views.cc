#include "runtime/api/pages/paged_views.h"

#include <algorithm>

namespace fasa {
namespace {

// In at most half of the memory that the pages left.
int fitting_hot_rows(const StepEngine& engine, int sequences) {
  const StepSettings& settings = engine.settings();
  const CacheLayout& layout = settings.layout;
  const MemoryUse use = engine.device().memory(MemorySpace::kDevice);
  const uint64_t room = use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
  const auto row = static_cast<uint64_t>(layout.heads()) *
                   static_cast<uint64_t>(layout.row.bytes() + 2 * int64_t{sizeof(int32_t)});
  const uint64_t most = room / 2 / (row * static_cast<uint64_t>(sequences));
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(settings.max_hot_rows), most));
}

}  // namespace

PagedViews::PagedViews(PagedStreams& streams, PageStore& store, int sequences, bool fit_hot_rows)
    : streams_(streams),
      engine_(streams.engine()),
      store_(store),
      max_sequences_(sequences),
      hot_rows_(fit_hot_rows ? fitting_hot_rows(engine_, sequences)
                             : engine_.settings().max_hot_rows) {}

void PagedViews::drop_stale() {
  if (epoch_ == store_.epoch()) return;
  bool drained = false;
  for (auto& view : views_) {
    const int64_t valid = view->valid_pages(store_);
    if (valid == view->pages()) continue;
    if (!drained) streams_.drain();
    drained = true;
    view->cut(store_, valid);
  }
  std::erase_if(views_, [](const auto& view) { return view->pages() == 0; });
  epoch_ = store_.epoch();
}

// Evicts the view that was unused for longest; false if this call uses all views.
bool PagedViews::evict() {
  const auto oldest =
      std::min_element(views_.begin(), views_.end(),
                       [](const auto& a, const auto& b) { return a->last_used < b->last_used; });
  if (oldest == views_.end() || (*oldest)->last_used == clock_) return false;
  streams_.drain();
  ++evictions_;
  views_.erase(oldest);
  return true;
}

PageView& PagedViews::of(std::span<const int32_t> pages) {
  PageView* best = nullptr;
  for (const auto& view : views_) {
    if (view->last_used == clock_ || !view->begins(pages)) continue;
    if (best == nullptr || view->pages() > best->pages()) best = view.get();
  }
  if (best == nullptr) {
    if (static_cast<int>(views_.size()) >= max_sequences_) evict();
    std::unique_ptr<PageView> view;
    with_room([&] {
      view = std::make_unique<PageView>(engine_.device(), engine_.settings(), hot_rows_);
    });
    best = view.get();
    views_.push_back(std::move(view));
  }
  use(*best);
  return *best;
}

void PagedViews::forget_hot_rows() {
  for (const auto& view : views_) view->forget_hot_rows();
}

void PagedViews::add_memory(KvMemory* memory) const {
  for (const auto& view : views_) {
    memory->device_slices += view->tail_bytes();
    memory->device_hot_rows += view->hot_bytes();
    memory->device_scratch += view->table_bytes();
    memory->host_tables += view->host_table_bytes();
  }
}

}  // namespace fasa
