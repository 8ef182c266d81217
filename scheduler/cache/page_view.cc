#include "scheduler/cache/page_view.h"

#include <algorithm>

namespace fasa {

PageView::PageView(Device& device, const StepSettings& settings, int hot_rows)
    : device_(device),
      settings_(settings),
      rows_(device, "page tables"),
      slices_(device, "page tables"),
      hot_rows_(device, settings.layout) {
  if (settings.access() == RowAccess::kOverLink && hot_rows > 0) hot_rows_.reserve(hot_rows);
}

bool PageView::begins(std::span<const int32_t> table) const {
  return pages_.size() <= table.size() &&
         std::equal(pages_.begin(), pages_.end(), table.begin(),
                    [](const Page& page, int32_t id) { return page.id == id; });
}

int64_t PageView::valid_pages(const PageStore& store) const {
  const auto stale = std::find_if(pages_.begin(), pages_.end(), [&](const Page& page) {
    return store.generation(page.id) != page.generation;
  });
  return stale - pages_.begin();
}

void PageView::cut(const PageStore& store, int64_t pages) {
  pages_.resize(static_cast<size_t>(pages));
  rows_.truncate(pages * store.parts());
  slices_.truncate(pages * store.parts());
  hot_rows_.forget();
}

void PageView::extend(const PageStore& store, std::span<const int32_t> table) {
  const int64_t before = rows_.size();
  const auto entries = static_cast<int64_t>(table.size()) * store.parts();
  if (entries == before) return;
  pages_.reserve(table.size());
  rows_.reserve(entries);
  if (store.uses_tails()) slices_.reserve(entries);
  rows_.prepare_overwrite(before);
  slices_.prepare_overwrite(before);
  for (size_t i = pages_.size(); i < table.size(); ++i) {
    pages_.push_back({table[i], store.generation(table[i])});
    for (int part = 0; part < store.parts(); ++part) {
      rows_.append(store.row_block(table[i], part));
      if (store.uses_tails()) slices_.append(store.slice_block(table[i], part));
    }
  }
}

std::byte* PageView::own_tail() {
  if (!own_tail_) {
    own_tail_ =
        device_.allocate(MemorySpace::kDevice, static_cast<size_t>(settings_.layout.tail_bytes()),
                         "slices of the newest pages");
  }
  return own_tail_.data();
}

void PageView::upload(StreamView control) {
  rows_.upload(control);
  slices_.upload(control);
  hot_rows_.prepare(control);
}

SequenceDesc PageView::describe() const {
  SequenceDesc desc;
  desc.mode = StepMode::kDecode;
  desc.slice_blocks = slices_.device_data();
  desc.row_blocks = rows_.device_data();
  desc.access = settings_.access();
  hot_rows_.describe(&desc);
  return desc;
}

}  // namespace fasa
