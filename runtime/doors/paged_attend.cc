// Attention over a caller's pages: a view for every sequence of the call, found again by its pages.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/hot_slots.h"
#include "runtime/base/error.h"
#include "runtime/doors/memory_prediction.h"
#include "runtime/doors/paged_guard.h"
#include "runtime/doors/paged_runtime_impl.h"
#include "runtime/doors/tensor_check.h"

namespace fasa {

void PagedRuntime::Impl::check_lengths(const char* call, const BlockTable& block_table,
                                       std::span<const int32_t> seq_lens) const {
  if (block_table.pages == nullptr || block_table.sequences < 1) {
    throw UsageError(fmt::format("{}: the block table is empty", call));
  }
  if (static_cast<int64_t>(seq_lens.size()) != block_table.sequences) {
    throw UsageError(fmt::format("{}: {} seq_lens for the {} sequences of the block table", call,
                                 seq_lens.size(), block_table.sequences));
  }
  const int64_t most =
      std::min<int64_t>(block_table.columns * shape_.page_size, INT32_MAX - shape_.page_size);
  for (size_t i = 0; i < seq_lens.size(); ++i) {
    if (seq_lens[i] >= 1 && seq_lens[i] <= most) continue;
    throw UsageError(
        fmt::format("{}: seq_lens[{}] = {}: allowed: 1 to {} ({} columns of {} tokens)", call, i,
                    seq_lens[i], most, block_table.columns, shape_.page_size));
  }
}

// Into the plan's table, page after page of the sequences.
void PagedRuntime::Impl::take_table(const BlockTable& block_table,
                                    std::span<const int32_t> seq_lens, Asked* asked) {
  Asked& plan = *asked;
  plan.table.clear();
  plan.lengths.assign(seq_lens.begin(), seq_lens.end());
  plan.parts.assign(seq_lens.size(), {});
  for (size_t i = 0; i < seq_lens.size(); ++i) {
    const int32_t* pages = block_table.pages + static_cast<int64_t>(i) * block_table.stride;
    for (int64_t page = 0; page < pages_for(seq_lens[i]); ++page) {
      require_page(pages[page]);
      plan.table.push_back(pages[page]);
    }
  }
  size_t first = 0;
  for (size_t i = 0; i < seq_lens.size(); ++i) {
    const auto pages = static_cast<size_t>(pages_for(seq_lens[i]));
    plan.parts[i].pages = std::span<const int32_t>(plan.table).subspan(first, pages);
    plan.parts[i].length = seq_lens[i];
    first += pages;
  }
}

void PagedRuntime::Impl::require_held(const char* call, int layer, const Part& part,
                                      int64_t index) const {
  const auto pages = static_cast<int64_t>(part.pages.size());
  for (int64_t i = part.first_open; i < pages; ++i) {
    const int32_t page = part.pages[static_cast<size_t>(i)];
    const int64_t read = std::min<int64_t>(part.length - i * shape_.page_size, shape_.page_size);
    if (store_.held(page, layer) >= read) continue;
    throw UsageError(
        fmt::format("{} to {} tokens of sequence {}: its page {} (id {}) holds {} tokens of "
                    "layer {}, {} are read; append them first",
                    call, part.length, index, i, page, store_.held(page, layer), layer, read));
  }
}

// The tail of the last page is of the part that holds the page's newest token.
bool PagedRuntime::Impl::needs_own_tail(int layer, const Part& part) const {
  if (!store_.uses_tails()) return false;
  const int32_t last = part.pages.back();
  if (store_.tail(last) == nullptr) return true;
  const int read = (part.length - 1) % shape_.page_size;
  return (store_.held(last, layer) - 1) / kPageTokens != read / kPageTokens;
}

bool PagedRuntime::Impl::plan_matches(int layer, const BlockTable& block_table,
                                      std::span<const int32_t> seq_lens) const {
  const AttendPlan& plan = attend_plan_;
  if (plan.epoch != store_.epoch() || (plan.only_layer >= 0 && plan.only_layer != layer) ||
      !std::equal(seq_lens.begin(), seq_lens.end(), plan.lengths.begin(), plan.lengths.end())) {
    return false;
  }
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const Part& part = plan.parts[i];
    const int32_t* pages = block_table.pages + static_cast<int64_t>(i) * block_table.stride;
    if (!std::equal(part.pages.begin(), part.pages.end(), pages)) return false;
    if (needs_own_tail(layer, part) != part.own_tail) return false;
  }
  return true;
}

void PagedRuntime::Impl::drop_stale_views() {
  if (views_epoch_ == store_.epoch()) return;
  bool drained = false;
  for (auto& view : views_) {
    const int64_t valid = view->valid_pages(store_);
    if (valid == view->pages()) continue;
    if (!drained) drain();
    drained = true;
    view->cut(store_, valid);
  }
  std::erase_if(views_, [](const auto& view) { return view->pages() == 0; });
  views_epoch_ = store_.epoch();
}

// The one that was unused for longest; false where all are at work in this call.
bool PagedRuntime::Impl::evict_view() {
  const auto oldest =
      std::min_element(views_.begin(), views_.end(),
                       [](const auto& a, const auto& b) { return a->last_used < b->last_used; });
  if (oldest == views_.end() || (*oldest)->last_used == clock_) return false;
  drain();
  attend_plan_.epoch = 0;
  views_.erase(oldest);
  return true;
}

// The slices of a view that began alike; without the memory for the table they are made again.
void PagedRuntime::Impl::share_longest(PageView& view, std::span<const int32_t> pages) {
  const PageView* longest = nullptr;
  int64_t common = 0;
  for (const auto& other : views_) {
    const int64_t shared = other->common_pages(pages);
    if (shared <= common) continue;
    common = shared;
    longest = other.get();
  }
  if (longest != nullptr) with_room([&] { view.share_index(*longest, store_, common); });
}

PageView& PagedRuntime::Impl::view_of(std::span<const int32_t> pages) {
  PageView* best = nullptr;
  for (const auto& view : views_) {
    if (view->last_used == clock_ || !view->begins(pages)) continue;
    if (best == nullptr || view->pages() > best->pages()) best = view.get();
  }
  if (best == nullptr) {
    if (static_cast<int>(views_.size()) >= shape_.max_sequences) evict_view();
    std::unique_ptr<PageView> view;
    with_room([&] {
      view = std::make_unique<PageView>(device_, settings_, indexes() ? &index_slices_ : nullptr);
    });
    if (indexes()) share_longest(*view, pages);
    best = view.get();
    views_.push_back(std::move(view));
  }
  best->last_used = clock_;
  return *best;
}

void PagedRuntime::Impl::prepare_part(int layer, Part& part) {
  PageView& view = view_of(part.pages);
  part.view = &view;
  with_room([&] { view.extend(store_, part.pages, part.length); });
  part.own_tail = needs_own_tail(layer, part);
  if (part.own_tail) with_room([&] { view.own_tail(); });
  const auto full = [this](int32_t page) { return store_.held_by_all(page) == shape_.page_size; };
  const auto open = std::find_if_not(part.pages.begin(), part.pages.end() - 1, full);
  part.first_open = open - part.pages.begin();
  const int64_t before = static_cast<int64_t>(part.pages.size()) - 1;
  const bool complete = part.first_open == before && store_.held_by_all(part.pages.back()) >=
                                                         part.length - before * shape_.page_size;
  if (part.own_tail && !complete) attend_plan_.only_layer = layer;
}

void PagedRuntime::Impl::describe_parts() {
  AttendPlan& plan = attend_plan_;
  DescriptorBuffer& slot = attend_slots_[plan.slot].step;
  auto& descs = slot.host(DescriptorBuffer::kStep);
  auto& restored = slot.host(DescriptorBuffer::kRestore);
  descs.clear();
  restored.clear();
  StepBatch& tables = plan.tables;
  tables.row_blocks.clear();
  tables.device_row_blocks.assign(plan.parts.size(), {});
  for (const Part& part : plan.parts) {
    SequenceDesc desc = part.view->describe();
    desc.first_token = static_cast<int32_t>(descs.size());
    desc.tokens = 1;
    desc.start = part.length - 1;
    if (part.own_tail) desc.tail = part.view->own_tail();
    if (store_.uses_tails() && !part.own_tail) desc.tail = store_.tail(part.pages.back());
    descs.push_back(desc);
    tables.row_blocks.push_back(part.view->row_blocks());
    if (!part.own_tail) continue;
    desc.tokens = 0;
    desc.start = part.length;
    desc.hot_table = nullptr;  // it stays as it is
    restored.push_back(desc);
  }
  tables.on_device = slot.device(DescriptorBuffer::kStep);
  tables.on_host = descs;
  tables.slice_dims = slice_dims_.as<int16_t>();
  tables.counters = counters_.layers();
  tables.tables_ready = tables_ready_.view();
  tables.by_page = true;
}

void PagedRuntime::Impl::plan_attend(int layer, const BlockTable& block_table,
                                     std::span<const int32_t> seq_lens) {
  AttendPlan& plan = attend_plan_;
  plan.epoch = 0;
  plan.only_layer = -1;
  take_table(block_table, seq_lens, &plan);
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    require_held("attend", layer, plan.parts[i], static_cast<int64_t>(i));
  }
  ++clock_;
  plan.number = clock_;
  drop_stale_views();
  for (Part& part : plan.parts) prepare_part(layer, part);
  const int longest = *std::max_element(seq_lens.begin(), seq_lens.end());
  const DecodeShape shape = decode_shape(settings_, longest, static_cast<int>(seq_lens.size()));
  if (!scratch_.covers(shape, {})) {
    drain();
    with_room([&] { scratch_.ensure(shape, {}); });
  }
  plan.slot = (plan.slot + 1) % attend_slots_.size();
  DescriptorBuffer& slot = attend_slots_[plan.slot].step;
  slot.wait_until_free();
  if (slot.capacity() < seq_lens.size()) {
    drain();
    with_room([&] { slot.ensure(seq_lens.size()); });
  }

  guard_.begin();
  const StreamView control = control_.view();
  const bool restores =
      std::any_of(plan.parts.begin(), plan.parts.end(), [](const Part& p) { return p.own_tail; });
  if (restores) drain();  // rows may be on their way to the host
  for (const Part& part : plan.parts) part.view->upload(control);
  describe_parts();
  slot.upload(control);
  restore(slot);
  device_.record(tables_ready_.view(), control);
  plan.epoch = store_.epoch();
}

// A layer that is not after the last one begins a step.
void PagedRuntime::Impl::begin_stamp(int layer) {
  if (layer <= last_layer_ || stamp_ == 0) {
    if (stamp_ >= shape_.most_steps) {
      drain();
      for (const auto& view : views_) view->forget_hot_rows();
      attend_plan_.epoch = 0;
      stamp_ = 0;
    }
    ++stamp_;
  }
  last_layer_ = layer;
}

void PagedRuntime::Impl::attend(int layer, ConstTensorView q, const BlockTable& block_table,
                                std::span<const int32_t> seq_lens, TensorView out, float* lse,
                                StreamView stream) {
  require_usable("attend", layer);
  check_lengths("attend", block_table, seq_lens);
  require_shape("q", q, block_table.sequences, geometry_.query_heads, geometry_.key_dim);
  require_shape("out", out, block_table.sequences, geometry_.query_heads, geometry_.value_dim);
  AttendPlan& plan = attend_plan_;
  guard_.run([&] {
    begin_stamp(layer);
    if (plan_matches(layer, block_table, seq_lens)) {
      for (size_t i = 0; i < plan.parts.size(); ++i) {
        require_held("attend", layer, plan.parts[i], static_cast<int64_t>(i));
        plan.parts[i].view->last_used = clock_;
      }
    } else {
      plan_attend(layer, block_table, seq_lens);
    }
    guard_.begin();
    plan.tables.stamp = StepStamp(stamp_);
    device_.wait(stream, last_.view(), tag_of(layer, Cause::kCompute));
    device_.wait(stream, tables_ready_.view(), tag_of(layer, Cause::kCompute));
    if (indexes()) make_index(layer, stream);
    pipeline_->attend(plan.tables, scratch_, layer, q, out, lse, stream);
    attend_slots_[plan.slot].step.mark_done(stream);
    device_.record(last_.view(), stream);
  });
  if (layer == 0) counters_.add_decode_step();
}

}  // namespace fasa
