// Slices of sequences whose pages are smaller than ours: made when they are attended to, by the
// append kernel, whose tokens are then the stored rows. Nothing but slices comes of it.
#include <algorithm>

#include "runtime/doors/paged_runtime_impl.h"

namespace fasa {

void PagedRuntime::Impl::list_index_pieces(int layer) {
  IndexPlan& plan = index_plan_;
  plan.begins.clear();
  plan.pieces.clear();
  plan.rounds.clear();
  const int page_size = shape_.page_size;
  const int64_t stage = settings_.layout.kv_heads * kPageTokens * settings_.layout.row.bytes();
  for (const Part& part : attend_plan_.parts) {
    plan.begins.push_back(part.view->index()->begin_of(layer, part.length));
  }
  for (int round = 0, found = 1; found > 0; ++round) {
    found = 0;
    for (size_t i = 0; i < plan.begins.size(); ++i) {
      const Part& part = attend_plan_.parts[i];
      const int first_page = plan.begins[i] / page_size;
      const int begin = std::max(plan.begins[i], (first_page + round) * page_size);
      const int end = std::min(part.length, (first_page + round + 1) * page_size);
      if (begin >= end) continue;
      const int64_t page = part.pages[static_cast<size_t>(first_page + round)];
      SequenceDesc piece = part.view->describe();
      piece.mode = StepMode::kPrefill;
      piece.start = begin;
      piece.tokens = end - begin;
      piece.first_token = static_cast<int32_t>(page * store_.page_rows() + begin % page_size);
      piece.stage = index_stage_.data() + static_cast<int64_t>(i) * stage;
      plan.pieces.push_back(piece);
      ++found;
    }
    if (found > 0) plan.rounds.push_back(plan.pieces.size());
  }
}

void PagedRuntime::Impl::reserve_index() {
  const CacheLayout& layout = settings_.layout;
  const size_t stage = attend_plan_.parts.size() *
                       static_cast<size_t>(layout.kv_heads * kPageTokens * layout.row.bytes());
  if (index_stage_.bytes() >= stage) return;
  drain();
  index_stage_ = Buffer();
  with_room([&] {
    index_stage_ = device_.allocate(MemorySpace::kDevice, stage, "rows that are indexed");
  });
}

// Layers that have as much to be indexed use the same tables.
void PagedRuntime::Impl::plan_index(int layer) {
  IndexPlan& plan = index_plan_;
  if (plan.attend_plan == attend_plan_.number) {
    bool same = true;
    for (size_t i = 0; i < plan.begins.size(); ++i) {
      const Part& part = attend_plan_.parts[i];
      same &= plan.begins[i] == part.view->index()->begin_of(layer, part.length);
    }
    if (same) return;
  }
  plan.attend_plan = 0;
  reserve_index();
  list_index_pieces(layer);
  plan.slot = (plan.slot + 1) % index_slots_.size();
  DescriptorBuffer& slot = index_slots_[plan.slot];
  slot.wait_until_free();
  if (slot.capacity() < plan.pieces.size()) {
    drain();
    with_room([&] { slot.ensure(plan.pieces.size()); });
  }
  slot.host(DescriptorBuffer::kStep) = plan.pieces;
  slot.upload(control_.view());
  device_.record(tables_ready_.view(), control_.view());
  plan.attend_plan = attend_plan_.number;
}

void PagedRuntime::Impl::make_index(int layer, StreamView stream) {
  plan_index(layer);
  const IndexPlan& plan = index_plan_;
  CacheLayout layout = settings_.layout;
  // Any row of the store is a token of these: see SequenceDesc::first_token above.
  const StoredRows stored{store_.rows() + layer * layout.row_layer_bytes(), layout.row.bytes(),
                          layout.row_head_bytes()};
  layout.row_page = kPageTokens;  // of the stage, where a page of ours fits
  const OperationTag tag = tag_of(layer, Cause::kCompute);
  device_.wait(stream, tables_ready_.view(), tag);
  pipeline_->wait_written_back(layer, stream, tag);
  DescriptorBuffer& slot = index_slots_[plan.slot];
  size_t begin = 0;
  for (const size_t end : plan.rounds) {
    const StepParams step{
        .layout = layout,
        .sequences = slot.device(DescriptorBuffer::kStep) + begin,
        .count = static_cast<int>(end - begin),
        .layer = layer,
        .slice_dims = slice_dims_.as<int16_t>() + layout.head_index(layer, 0) * layout.slice.dims};
    device_.enqueue(
        AppendParams{.step = step, .k = {}, .v = {}, .rows_on_device = false, .stored = stored},
        stream, tag);
    begin = end;
  }
  if (begin > 0) slot.mark_done(stream);
  for (const Part& part : attend_plan_.parts) part.view->index()->set_indexed(layer, part.length);
}

}  // namespace fasa
