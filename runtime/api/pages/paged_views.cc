#include "runtime/api/pages/paged_views.h"

#include <algorithm>

namespace fasa {

PagedViews::PagedViews(PagedParts& parts)
    : parts_(parts),
      index_slices_(parts.device, MemorySpace::kDevice,
                    static_cast<size_t>(parts.settings.layout.slice_block_bytes()), "slices") {}

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

// Shares the slices of a view with the same first pages. Each attempt searches again, because the
// view found before may have been evicted to make room.
void PagedViews::share_longest(PageView& view, std::span<const int32_t> pages) {
  with_room([&] {
    const PageView* longest = nullptr;
    int64_t common = 0;
    for (const auto& other : views_) {
      const int64_t shared = other->common_pages(pages);
      if (shared <= common) continue;
      common = shared;
      longest = other.get();
    }
    if (longest != nullptr) view.share_index(*longest, parts_.store, common);
  });
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
      view = std::make_unique<PageView>(parts_.device, parts_.settings, parts_.hot_rows,
                                        parts_.indexes() ? &index_slices_ : nullptr);
    });
    if (parts_.indexes()) share_longest(*view, pages);
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
  memory->device_slices += index_slices_.held_bytes();
  for (const auto& view : views_) {
    memory->device_slices += view->tail_bytes();
    memory->device_hot_rows += view->hot_bytes();
    memory->device_scratch += view->table_bytes();
    memory->host_tables += view->host_table_bytes();
  }
}

}  // namespace fasa
