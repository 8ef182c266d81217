#include "runtime/api/pages/paged_views.h"

#include <algorithm>

namespace fasa {

void PagedViews::drop_stale() {
  if (epoch_ == parts_.store.epoch()) return;
  bool drained = false;
  for (auto& view : views_) {
    const int64_t valid = view->valid_pages(parts_.store);
    if (valid == view->pages()) continue;
    if (!drained) parts_.drain();
    drained = true;
    view->cut(parts_.store, valid);
  }
  std::erase_if(views_, [](const auto& view) { return view->pages() == 0; });
  epoch_ = parts_.store.epoch();
}

// Evicts the view that was unused for longest; false if this call uses all views.
bool PagedViews::evict() {
  const auto oldest =
      std::min_element(views_.begin(), views_.end(),
                       [](const auto& a, const auto& b) { return a->last_used < b->last_used; });
  if (oldest == views_.end() || (*oldest)->last_used == clock_) return false;
  parts_.drain();
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
    if (static_cast<int>(views_.size()) >= parts_.shape.max_sequences) evict();
    std::unique_ptr<PageView> view;
    with_room([&] {
      view = std::make_unique<PageView>(parts_.device, parts_.settings, parts_.hot_rows);
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
