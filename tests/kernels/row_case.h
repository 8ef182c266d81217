// A small cache for the tests of the row kernels: keys, values and queries are functions of
// (sequence, layer, position, head, dimension), so that the same tokens can be appended in any
// split, batch and placement.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows/row_bodies.h"
#include "kernels/slice_pack.h"
#include "tests/support/reference/kernels.h"

namespace fasa {

struct RowShape {
  int layers = 1;
  int kv_heads = 2;
  int group = 2;
  int key_dim = 64;
  int value_dim = 64;
  RowDType row = RowDType::kBF16;
  DType input = DType::kF32;
  SliceDType slice = SliceDType::kInt2;
  bool slices = true;                // of all key dimensions
  int fine = 0;                      // of these, in two parts
  std::optional<SliceDType> values;  // of whole values
  int sinks = 4;
  int recent = 16;
  int hot_rows = 0;
  bool on_device = true;
  bool written_back = false;       // local rows have homes on the host
  bool device_copies = false;      // device copies of every other page of host rows
  std::vector<float> slopes = {};  // ALiBi's, [kv_heads x group]
  float score_cap = 0;             // applied before the scale
  int sharers = 0;                 // calls for the last layer are those of its last sharer
};

inline constexpr RowDType kRowDTypes[] = {RowDType::kF32, RowDType::kF16, RowDType::kBF16,
                                          RowDType::kInt8};

enum class InputKind : uint32_t { kKey, kValue, kQuery };

// Uniform in (-1, 1), by a hash of all arguments.
inline float noise(InputKind kind, int sequence, int layer, int position, int head, int dim) {
  uint64_t x = static_cast<uint64_t>(kind) + 1;
  for (const int part : {sequence, layer, position, head, dim}) {
    x = (x ^ static_cast<uint64_t>(part + 1)) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
  }
  return static_cast<float>(static_cast<int32_t>(x >> 32)) * 0x1p-31f;
}

// A sequence's memory, for up to `capacity` tokens; filled with 0xAB bytes.
struct RowSequence {
  RowSequence(const CacheLayout& layout, int number, int capacity, int hot_rows) : id(number) {
    const int pages = (capacity + kPageTokens - 1) / kPageTokens;
    const auto bytes = [](int64_t count) {
      return std::vector<std::byte>(static_cast<size_t>(count), std::byte{0xAB});
    };
    for (int page = 0; page < pages; ++page) {
      rows.push_back(bytes(layout.row_block_bytes()));
      slices.push_back(bytes(layout.slice_block_bytes()));
    }
    for (int page = 0; page < pages; ++page) {
      row_blocks.push_back(rows[static_cast<size_t>(page)].data());
      slice_blocks.push_back(slices[static_cast<size_t>(page)].data());
    }
    tail = bytes(layout.tail_bytes());
    protected_rows = bytes(layout.protected_bytes());
    hot = bytes(layout.hot_bytes(hot_rows));
    hot_table.assign(static_cast<size_t>(layout.hot_table_bytes(hot_rows) / 4), -1);
  }
  void add_homes() {
    homes = rows;
    for (auto& home : homes) home_blocks.push_back(home.data());
  }
  // The last page gets no copy.
  void copy_every_other_page() {
    copies.resize(rows.size());
    for (size_t page = 0; page + 1 < rows.size(); ++page) {
      if (page % 2 == 1) copies[page] = rows[page];
      device_row_blocks.push_back(page % 2 == 1 ? copies[page].data() : nullptr);
    }
  }
  int id;
  int length = 0;
  std::vector<std::vector<std::byte>> rows, homes, slices, copies;
  std::vector<std::byte*> row_blocks, home_blocks, slice_blocks, device_row_blocks;
  std::vector<std::byte> tail, protected_rows, hot;
  std::vector<int32_t> hot_table;
};

struct Advance {
  int sequence;  // index in the case
  int tokens;
  StepMode mode = StepMode::kPrefill;
};

// One step: descriptors and the tensors of one layer at a time.
struct RowStep {
  std::vector<SequenceDesc> descs;
  std::vector<int> ids;
  std::vector<std::vector<std::byte>> write_back_buffers;
  int tokens = 0;
  std::vector<std::byte> k, v, q;
};

class RowCase {
 public:
  RowCase(const RowShape& shape, const std::vector<int>& ids, int capacity) : shape_(shape) {
    layout_.layers = shape.layers;
    layout_.kv_heads = shape.kv_heads;
    layout_.gqa_group = shape.group;
    layout_.row = {shape.row, shape.key_dim, shape.value_dim};
    layout_.slice = {shape.slice, shape.slices ? shape.key_dim + shape.fine : 0,
                     SliceOrder::kByGroup, shape.fine};
    if (shape.values) layout_.values = {*shape.values, shape.value_dim, SliceOrder::kByToken};
    layout_.sinks = shape.sinks;
    layout_.recent = shape.recent;
    layout_.sharers = shape.sharers;
    for (const int id : ids) {
      sequences_.push_back(std::make_unique<RowSequence>(layout_, id, capacity, shape.hot_rows));
      if (shape.device_copies) sequences_.back()->copy_every_other_page();
      if (shape.written_back) sequences_.back()->add_homes();
    }
    for (int64_t head = 0; head < layout_.heads(); ++head) {
      for (int d = 0; d < shape.key_dim; ++d) {  // a different order in every head
        dims_.push_back(static_cast<int16_t>((d + head) % shape.key_dim));
      }
    }
    if (shape.slices) dims_ = stored_dims(layout_.slice, dims_);
  }

  using InputOf = std::function<float(InputKind, int, int, int, int, int)>;
  void set_input(InputOf input) { input_ = std::move(input); }

  const RowShape& shape() const { return shape_; }
  const CacheLayout& layout() const { return layout_; }
  bool writes_back() const { return !shape_.on_device || shape_.written_back; }
  RowSequence& sequence(int index) { return *sequences_[static_cast<size_t>(index)]; }

  RowStep begin(const std::vector<Advance>& advances) {
    RowStep step;
    for (const Advance& advance : advances) {
      RowSequence& owner = sequence(advance.sequence);
      SequenceDesc desc;
      desc.mode = advance.mode;
      desc.first_token = step.tokens;
      desc.tokens = advance.tokens;
      desc.start = owner.length;
      if (shape_.slices) desc.slice_blocks = owner.slice_blocks.data();
      desc.row_blocks = owner.row_blocks.data();
      if (shape_.written_back) desc.home_blocks = owner.home_blocks.data();
      desc.device_row_blocks = owner.device_row_blocks.data();
      desc.device_row_pages = static_cast<int32_t>(owner.device_row_blocks.size());
      if (shape_.slices) desc.tail = owner.tail.data();
      if (!shape_.on_device) {
        desc.access = RowAccess::kOverLink;
        desc.protected_rows = owner.protected_rows.data();
        if (shape_.hot_rows > 0) desc.hot = owner.hot.data();
        if (shape_.hot_rows > 0) desc.hot_table = owner.hot_table.data();
        desc.hot_rows = shape_.hot_rows;
        if (advance.mode == StepMode::kPrefill && advance.tokens > 0) {
          const int64_t pages = (desc.end() - 1) / kPageTokens - desc.start / kPageTokens + 1;
          step.write_back_buffers.emplace_back(
              static_cast<size_t>(pages * layout_.row_layer_bytes()), std::byte{0xCD});
          desc.write_back_buffer = step.write_back_buffers.back().data();
        }
      }
      step.descs.push_back(desc);
      step.ids.push_back(owner.id);
      step.tokens += advance.tokens;
    }
    return step;
  }

  // Fills in the tensors of `layer`.
  void fill(RowStep& step, int layer) const {
    step.k = tensor(step, InputKind::kKey, layer, shape_.kv_heads, shape_.key_dim);
    step.v = tensor(step, InputKind::kValue, layer, shape_.kv_heads, shape_.value_dim);
    step.q = tensor(step, InputKind::kQuery, layer, layout_.query_heads(), shape_.key_dim);
  }

  StepParams params(const RowStep& step, int layer) const {
    return {.layout = layout_,
            .sequences = step.descs.data(),
            .count = static_cast<int>(step.descs.size()),
            .layer = layer,
            .sharer = layer + 1 == shape_.layers ? shape_.sharers : 0,
            .slice_dims = dims_.data() + int64_t{layer} * shape_.kv_heads * layout_.slice.dims,
            .slopes = shape_.slopes.empty() ? nullptr : shape_.slopes.data(),
            .score_cap = shape_.score_cap};
  }
  AppendParams append_params(const RowStep& step, int layer) const {
    AppendParams params;
    params.step = this->params(step, layer);
    params.k = ConstTensorView::dense(step.k.data(), shape_.input, step.tokens, shape_.kv_heads,
                                      shape_.key_dim);
    params.v = ConstTensorView::dense(step.v.data(), shape_.input, step.tokens, shape_.kv_heads,
                                      shape_.value_dim);
    return params;
  }
  ConstTensorView query_view(const RowStep& step) const {
    return ConstTensorView::dense(step.q.data(), shape_.input, step.tokens, layout_.query_heads(),
                                  shape_.key_dim);
  }

  // Appends all layers, and writes rows back where they live on the host.
  void append(RowStep& step, bool with_reference = false) {
    for (int layer = 0; layer < shape_.layers; ++layer) {
      fill(step, layer);
      with_reference ? reference::append(append_params(step, layer))
                     : static_cast<void>(cpu::run(append_params(step, layer)));
      if (!writes_back()) continue;
      const WriteBackParams back = {params(step, layer)};
      with_reference ? reference::write_back(back) : static_cast<void>(cpu::run(back));
    }
  }
  void commit(const std::vector<Advance>& advances) {
    for (const Advance& advance : advances) sequence(advance.sequence).length += advance.tokens;
  }
  void advance(const std::vector<Advance>& advances, bool with_reference = false) {
    RowStep step = begin(advances);
    append(step, with_reference);
    commit(advances);
  }

 private:
  std::vector<std::byte> tensor(const RowStep& step, InputKind kind, int layer, int heads,
                                int dim) const {
    std::vector<std::byte> data(static_cast<size_t>(step.tokens * heads * dim) *
                                static_cast<size_t>(dtype_bytes(shape_.input)));
    int64_t at = 0;
    for (size_t s = 0; s < step.descs.size(); ++s) {
      for (int i = 0; i < step.descs[s].tokens; ++i) {
        for (int h = 0; h < heads; ++h) {
          for (int d = 0; d < dim; ++d) {
            store_element(shape_.input, data.data(), at++,
                          input_(kind, step.ids[s], layer, step.descs[s].start + i, h, d));
          }
        }
      }
    }
    return data;
  }

  RowShape shape_;
  CacheLayout layout_;
  std::vector<std::unique_ptr<RowSequence>> sequences_;
  std::vector<int16_t> dims_;
  InputOf input_ = noise;
};

}  // namespace fasa
