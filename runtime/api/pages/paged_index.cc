#include "runtime/api/pages/paged_index.h"

#include <algorithm>

namespace fasa {

void PagedIndex::list_pieces(const PagedRequest& request, int layer) {
  Plan& plan = plan_;
  plan.begins.clear();
  plan.pieces.clear();
  plan.rounds.clear();
  const int page_size = parts_.shape.page_size;
  const int64_t buffer_bytes =
      parts_.settings.layout.kv_heads * kPageTokens * parts_.settings.layout.row.bytes();
  for (const PagedRequest::Part& part : request.parts) {
    plan.begins.push_back(part.view->index()->begin_of(layer, part.length));
  }
  for (int round = 0, found = 1; found > 0; ++round) {
    found = 0;
    for (size_t i = 0; i < plan.begins.size(); ++i) {
      const PagedRequest::Part& part = request.parts[i];
      const int first_page = plan.begins[i] / page_size;
      const int begin = std::max(plan.begins[i], (first_page + round) * page_size);
      const int end = std::min(part.length, (first_page + round + 1) * page_size);
      if (begin >= end) continue;
      const int64_t page = part.pages[static_cast<size_t>(first_page + round)];
      SequenceDesc piece = part.view->describe();
      piece.mode = StepMode::kPrefill;
      piece.access = RowAccess::kOverLink;  // rows go to the buffer
      piece.start = begin;
      piece.tokens = end - begin;
      piece.first_token = static_cast<int32_t>(page * parts_.store.page_rows() + begin % page_size);
      piece.write_back_buffer = row_buffer_.data() + static_cast<int64_t>(i) * buffer_bytes;
      plan.pieces.push_back(piece);
      ++found;
    }
    if (found > 0) plan.rounds.push_back(plan.pieces.size());
  }
}

void PagedIndex::reserve(size_t sequences) {
  const CacheLayout& layout = parts_.settings.layout;
  const size_t buffer_bytes =
      sequences * static_cast<size_t>(layout.kv_heads * kPageTokens * layout.row.bytes());
  if (row_buffer_.bytes() >= buffer_bytes) return;
  parts_.drain();
  row_buffer_ = Buffer();
  views_.with_room([&] {
    row_buffer_ = parts_.device.allocate(MemorySpace::kDevice, buffer_bytes, "index of rows");
  });
}

// Layers with as many tokens to index share the same tables.
void PagedIndex::make_plan(const PagedRequest& request, uint64_t number, int layer) {
  Plan& plan = plan_;
  if (plan.number == number) {
    bool same = true;
    for (size_t i = 0; i < plan.begins.size(); ++i) {
      const PagedRequest::Part& part = request.parts[i];
      same &= plan.begins[i] == part.view->index()->begin_of(layer, part.length);
    }
    if (same) return;
  }
  plan.number = 0;
  reserve(request.parts.size());
  list_pieces(request, layer);
  plan.slot = (plan.slot + 1) % slots_.size();
  DescriptorBuffer& slot = slots_[plan.slot];
  slot.wait_until_free();
  views_.with_room([&] { slot.ensure(plan.pieces.size()); });
  slot.host(DescriptorBuffer::kStep) = plan.pieces;
  slot.upload(parts_.control.view());
  parts_.record_tables();
  plan.number = number;
}

void PagedIndex::make(const PagedRequest& request, uint64_t number, int layer, StreamView stream) {
  make_plan(request, number, layer);
  const Plan& plan = plan_;
  CacheLayout layout = parts_.settings.layout;
  // Tokens are given as rows of the store: see SequenceDesc::first_token above.
  const StoredRows stored{parts_.store.rows() + layer * layout.row_layer_bytes(),
                          layout.row.bytes(), layout.row_head_bytes()};
  layout.row_page = kPageTokens;  // of the write-back buffer, which holds a whole runtime page
  const OperationTag tag = tag_of(layer, Cause::kCompute);
  parts_.device.wait(stream, parts_.tables_ready.view(), tag);
  parts_.pipeline->wait_written_back(layer, stream, tag);
  DescriptorBuffer& slot = slots_[plan.slot];
  size_t begin = 0;
  for (const size_t end : plan.rounds) {
    const StepParams step{.layout = layout,
                          .sequences = slot.device(DescriptorBuffer::kStep) + begin,
                          .count = static_cast<int>(end - begin),
                          .layer = layer,
                          .slice_dims = parts_.slice_dims.as<int16_t>() +
                                        layout.head_index(layer, 0) * layout.slice.dims};
    parts_.device.enqueue(AppendParams{.step = step, .k = {}, .v = {}, .stored = stored}, stream,
                          tag);
    begin = end;
  }
  if (begin > 0) slot.mark_done(stream);
  for (const PagedRequest::Part& part : request.parts)
    part.view->index()->set_indexed(layer, part.length);
}

}  // namespace fasa
