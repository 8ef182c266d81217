#include "runtime/capture/slice_index.h"

#include <algorithm>

#include "kernels/run_on_host.h"
#include "kernels/slice_pack.h"
#include "runtime/base/raw_slopes.h"

namespace fasa {
namespace {

CacheLayout layout_of(const Geometry& geometry, const SliceIndexShape& shape) {
  CacheLayout layout;
  layout.layers = geometry.storing_layers();
  layout.kv_heads = geometry.kv_heads;
  layout.gqa_group = geometry.gqa_group();
  layout.row = {shape.row_dtype, geometry.key_dim, geometry.value_dim};
  const int fine = 2 * shape.fine_chunks;
  layout.slice = {shape.slice_dtype, 2 * shape.chunks + fine, SliceOrder::kByGroup, fine};
  layout.sinks = shape.sinks;
  layout.recent = shape.recent;
  return layout;
}

}  // namespace

SliceIndex::SliceIndex(const Geometry& geometry, const SliceIndexShape& shape,
                       const std::vector<int16_t>& ranked_dims)
    : layout_(layout_of(geometry, shape)),
      windows_(geometry.windows),
      slopes_(raw_slopes(geometry)),
      score_cap_(raw_score_cap(geometry)),
      largest_set_(shape.largest_set),
      tail_(memory(layout_.tail_bytes())),
      row_block_(memory(layout_.row_block_bytes())) {
  for (int layer = 0; layer < geometry.layers; ++layer) {
    kv_layers_.push_back(geometry.kv_layer(layer));
  }
  const size_t ranked =
      ranked_dims.size() / static_cast<size_t>(geometry.layers * geometry.kv_heads);
  for (size_t head = 0; head < static_cast<size_t>(layout_.heads()); ++head) {
    const auto first = ranked_dims.begin() + static_cast<int64_t>(head * ranked);
    dims_.insert(dims_.end(), first, first + layout_.slice.coded_dims());
  }
  dims_ = stored_dims(layout_.slice, dims_);
  const int pages = pages_of(shape.tokens);
  const int64_t block = layout_.slice_block_bytes();
  slices_ = memory(pages * block);
  for (int page = 0; page < pages; ++page) {
    slice_blocks_.push_back(slices_.data()->bytes + page * block);
    row_blocks_.push_back(row_block_.data()->bytes);
  }
  sets_.resize(static_cast<size_t>(layout_.kv_heads) * static_cast<size_t>(largest_set_));
  selected_sizes_.resize(static_cast<size_t>(layout_.kv_heads));
}

SequenceDesc SliceIndex::describe(int64_t start, int tokens) const {
  SequenceDesc sequence;
  sequence.tokens = tokens;
  sequence.start = static_cast<int32_t>(start);
  sequence.slice_blocks = slice_blocks_.data();
  sequence.row_blocks = row_blocks_.data();
  sequence.tail = const_cast<std::byte*>(tail_.data()->bytes);  // only append() writes it
  return sequence;
}

StepParams SliceIndex::step_params(int layer, const SequenceDesc& sequence) const {
  return {.layout = layout_,
          .sequences = &sequence,
          .count = 1,
          .layer = layer,
          .slice_dims = dims_.data() + layout_.head_index(layer, 0) * layout_.slice.dims,
          .slopes = slopes_.empty() ? nullptr : slopes_.data(),
          .score_cap = score_cap_};
}

// Seals page by page: the rows of all pages go through one block.
void SliceIndex::append(int layer, ConstTensorView k, ConstTensorView v, int64_t start) {
  for (int64_t done = 0; done < k.tokens;) {
    const int64_t position = start + done;
    const int64_t room = kPageTokens - position % kPageTokens;
    SequenceDesc sequence =
        describe(position, static_cast<int>(std::min<int64_t>(room, k.tokens - done)));
    sequence.mode = StepMode::kPrefill;
    sequence.first_token = static_cast<int32_t>(done);
    run_on_host(AppendParams{.step = step_params(layer, sequence), .k = k, .v = v});
    done += sequence.tokens;
  }
}

void SliceIndex::select(int layer, ConstTensorView q, int64_t position, int32_t tokens) {
  const SequenceDesc sequence = describe(position, 1);
  SelectParams params;
  params.step = step_params(kv_layers_[static_cast<size_t>(layer)], sequence);
  params.q = q;
  params.budget = {.tokens = std::min(tokens, largest_set_), .share = 0};
  params.window = windows_.empty() ? 0 : windows_[static_cast<size_t>(layer)];
  params.selected_capacity = largest_set_;
  params.sets = sets_.data();
  params.selected_sizes = selected_sizes_.data();
  run_on_host(params);
}

}  // namespace fasa
