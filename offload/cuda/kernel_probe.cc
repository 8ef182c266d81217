#include "offload/cuda/kernel_probe.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/layout.h"
#include "offload/cuda/gpu_traits.h"

namespace fasa {
namespace {

constexpr int kPages = KernelProbe::kTokens / kPageTokens;
constexpr int kSinks = 4;
constexpr int kRecent = 16;
constexpr int kDims = 128;
constexpr int kSetCount = (KernelProbe::kTokens - kSinks - kRecent) / KernelProbe::kFewTokens;

template <typename T>
void put(std::vector<std::byte>& image, size_t at, const T* values, size_t count) {
  std::memcpy(image.data() + at, values, count * sizeof(T));
}

}  // namespace

KernelProbe::KernelProbe() {
  layout_.layers = 1;
  layout_.kv_heads = 1;
  layout_.row = {RowDType{}, kDims, kDims};
  layout_.slice = {SliceDType::kInt2, kDims};
  layout_.sinks = kSinks;
  layout_.recent = kRecent;
  const auto add = [this](size_t bytes) {
    const size_t at = bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return at;
  };
  at_.few = add(sizeof(SequenceDesc));
  at_.many = add(sizeof(SequenceDesc));
  at_.local = add(sizeof(SequenceDesc));
  at_.page = add(static_cast<size_t>(layout_.slice_block_bytes()));
  at_.pages = add(kPages * sizeof(std::byte*));
  at_.tail = add(static_cast<size_t>(layout_.tail_bytes()));
  at_.query = add(kDims * sizeof(float));
  at_.dims = add(kDims * sizeof(int16_t));
  at_.sets = add(kTokens * sizeof(int32_t));
  at_.sizes = add(sizeof(int32_t));
  for (size_t* table : {&at_.few_table, &at_.many_table}) {
    *table = add(static_cast<size_t>(layout_.hot_table_bytes(kManySlots)));
  }
  at_.scratch = add(static_cast<size_t>(
      gpu_traits(kUsualCapability).select_scratch(layout_, 1, kManyTokens, kPages)));
  at_.set = add(kManyTokens * sizeof(int32_t));
  at_.set_size = add(sizeof(int32_t));
  at_.counters = add(sizeof(StepCounters));
  at_.rows = add(kFewTokens * sizeof(std::byte*));
  at_.ready = add(kFewTokens);
  at_.fetches = add(kFewTokens * sizeof(FetchItem));
  at_.fetch_count = add(sizeof(int32_t));
}

SequenceDesc KernelProbe::sequence(std::byte* base, int slots) const {
  SequenceDesc sequence;
  sequence.tokens = 1;
  sequence.start = kTokens - 1;
  sequence.slice_blocks = reinterpret_cast<std::byte* const*>(base + at_.pages);
  // Rows are only pointed to: nothing reads or moves them.
  sequence.row_blocks = sequence.slice_blocks;
  sequence.tail = base + at_.tail;
  sequence.step_number = 1;
  if (slots == 0) return sequence;
  sequence.access = RowAccess::kOverLink;
  sequence.protected_rows = base;
  sequence.hot = base;
  const size_t table = slots == kFewSlots ? at_.few_table : at_.many_table;
  sequence.hot_table = reinterpret_cast<int32_t*>(base + table);
  sequence.hot_rows = slots;
  return sequence;
}

std::vector<std::byte> KernelProbe::image(std::byte* base) const {
  std::vector<std::byte> image(bytes_);
  const SequenceDesc sequences[] = {sequence(base, kFewSlots), sequence(base, kManySlots),
                                    sequence(base, 0)};
  put(image, at_.few, &sequences[0], 1);
  put(image, at_.many, &sequences[1], 1);
  put(image, at_.local, &sequences[2], 1);
  // Any bytes do as slices whose values are finite in every type.
  std::minstd_rand random(1);
  for (size_t i = 0; i < static_cast<size_t>(layout_.slice_block_bytes()); ++i) {
    image[at_.page + i] = static_cast<std::byte>(random() / 7 % 0x3c);
  }
  std::fill_n(image.begin() + static_cast<std::ptrdiff_t>(at_.tail), layout_.tail_bytes(),
              std::byte{0x31});
  const std::vector<std::byte*> pages(kPages, base + at_.page);
  put(image, at_.pages, pages.data(), pages.size());
  std::vector<float> query;
  std::vector<int16_t> dims;
  for (int d = 0; d < kDims; ++d) {
    query.push_back(static_cast<float>(random() % 200) / 100 - 1);
    dims.push_back(static_cast<int16_t>(d));
  }
  put(image, at_.query, query.data(), query.size());
  put(image, at_.dims, dims.data(), dims.size());
  std::vector<int32_t> sets;
  for (int i = 0; i < kSetCount * kFewTokens; ++i) sets.push_back(kSinks + i);
  put(image, at_.sets, sets.data(), sets.size());
  const int32_t size = kFewTokens;
  put(image, at_.sizes, &size, 1);
  std::ranges::fill(hot_tables(image.data()), std::byte{kEmptySlots});
  return image;
}

std::span<std::byte> KernelProbe::hot_tables(std::byte* base) const {
  const size_t end = at_.many_table + static_cast<size_t>(layout_.hot_table_bytes(kManySlots));
  return {base + at_.few_table, end - at_.few_table};
}

StepParams KernelProbe::step(std::byte* base, int slots) const {
  const size_t at = slots == 0 ? at_.local : slots == kFewSlots ? at_.few : at_.many;
  return {.layout = layout_,
          .sequences = reinterpret_cast<const SequenceDesc*>(base + at),
          .count = 1,
          .slice_dims = reinterpret_cast<const int16_t*>(base + at_.dims)};
}

SelectParams KernelProbe::select(std::byte* base, int set) const {
  SelectParams params;
  params.step = step(base, 0);
  params.q = ConstTensorView::dense(base + at_.query, DType::kF32, 1, 1, kDims);
  params.budget.tokens = set;
  params.selected_capacity = set;
  params.sets = reinterpret_cast<int32_t*>(base + at_.set);
  params.selected_sizes = reinterpret_cast<int32_t*>(base + at_.set_size);
  params.counters = reinterpret_cast<StepCounters*>(base + at_.counters);
  params.scratch = base + at_.scratch;
  params.page_capacity = kPages;
  return params;
}

ResolveParams KernelProbe::resolve(std::byte* base, int slots, int step_index) const {
  ResolveParams params;
  params.step = step(base, slots);
  params.end = kFewTokens;
  params.step_number = StepNumber(1 + step_index);
  params.selected_capacity = kFewTokens;
  params.sets = reinterpret_cast<const int32_t*>(base + at_.sets) +
                std::ptrdiff_t{step_index % kSetCount} * kFewTokens;
  params.selected_sizes = reinterpret_cast<const int32_t*>(base + at_.sizes);
  params.fetch_buffer = base;
  params.rows = reinterpret_cast<const std::byte**>(base + at_.rows);
  params.tile_ready = reinterpret_cast<uint8_t*>(base + at_.ready);
  params.fetches = reinterpret_cast<FetchItem*>(base + at_.fetches);
  params.fetch_counts = reinterpret_cast<int32_t*>(base + at_.fetch_count);
  params.counters = reinterpret_cast<StepCounters*>(base + at_.counters);
  return params;
}

}  // namespace fasa
