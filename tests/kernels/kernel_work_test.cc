// The work that kernels report equals the formulas of kernel_work.h.
#include "kernels/kernel_work.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "kernels/cpu/kernels.h"
#include "kernels/prefill_work.h"
#include "tests/kernels/select_case.h"

namespace fasa {
namespace {

float some_key(int sequence, int head, int token, int dim) {
  return static_cast<float>((token * 37 + dim * 11 + head * 5 + sequence * 3) % 101) / 50.0f - 1.0f;
}
float some_query(int sequence, int head, int dim) {
  return static_cast<float>((dim * 7 + head * 3 + sequence) % 13) / 6.0f - 1.0f;
}

// With at most 1024 visible tokens the sampled threshold excludes none, so there is no rescan.
TEST(KernelWork, SelectionReadsEveryVisiblePageOnce) {
  for (const SliceDType dtype : {SliceDType::kF32, SliceDType::kBF16, SliceDType::kInt8,
                                 SliceDType::kInt4, SliceDType::kInt2}) {
    for (const int window : {0, 130}) {
      const SelectShape shape{
          .dtype = dtype, .dims = 18, .kv_heads = 3, .group = 2, .window = window, .budget = 40};
      const std::vector<int> lengths = {65, 64, 1000};
      SelectCase cache(shape, lengths, some_key, some_query);
      // By hand: 18 dimensions are padded to 20, 24 and 32 as codes of 8, 4 and 2 bits. 16 bits of
      // parameters a dimension, rounded up to 64 bytes, and an f32 for the page.
      const std::map<SliceDType, uint64_t> sealed = {{SliceDType::kF32, 64 * 18 * 4},
                                                     {SliceDType::kBF16, 64 * 18 * 2},
                                                     {SliceDType::kInt8, 1344 + 4},
                                                     {SliceDType::kInt4, 832 + 4},
                                                     {SliceDType::kInt2, 576 + 4}};
      const uint64_t tail = 64 * 18 * (dtype == SliceDType::kF32 ? 4 : 2);
      uint64_t expected = 0;
      for (const int length : lengths) {
        const int first = window > 0 ? std::max(0, length - window) : 0;
        const auto pages = static_cast<uint64_t>((length - 1) / 64 - first / 64);
        expected += 3 * (pages * sealed.at(dtype) + tail);
      }
      EXPECT_EQ(cpu::run(cache.params()).device_bytes, expected) << slice_dtype_name(dtype);
    }
  }
}

TEST(KernelWork, ASetOfEverythingReadsNoSlices) {
  SelectCase cache({.budget = 64}, {50}, some_key, some_query);
  EXPECT_EQ(cpu::run(cache.params()).device_bytes, 0u);
}

TEST(KernelWork, BytesByHand) {
  CacheLayout layout;
  layout.layers = 2;
  layout.kv_heads = 8;
  layout.gqa_group = 4;
  layout.row = {DType::kBF16, 128, 128};
  layout.slice = {SliceDType::kInt2, 128};
  EXPECT_EQ(rows_bytes(layout, 3), 3u * 512);
  EXPECT_EQ(append_bytes(layout, 2), 2u * (1024 + 256));
  EXPECT_EQ(seal_bytes(layout), 64u * 256 + 64 * 32 + 256);
  EXPECT_EQ(scored_page_bytes(layout.slice), 64u * 32 + 256 + 4);
  // Two sealed pages and the tail.
  EXPECT_EQ(select_bytes(layout.slice, 0, 129), 2u * (64 * 32 + 256 + 4) + 64 * 256);
  EXPECT_EQ(resolve_bytes(8, 256, 512), 8u * (256 * 12 + 2 * 512 * 4));
  EXPECT_EQ(output_bytes(layout, 32, DType::kF32), 32u * 128 * 4);
  // Positions and scores of four query heads are read twice; a row has 32 bytes of codes, its
  // parameters and their base.
  layout.values = {SliceDType::kInt2, 128, SliceOrder::kByToken};
  EXPECT_EQ(low_bit_bytes(layout, 3), 3u * (2 * (4 + 4 * 4) + 32 + 256 + 4));
  // By page: a maximum and 64 scores of four query heads, written and read; two pages and the tail.
  EXPECT_EQ(page_scores_bytes(layout, 3), 3u * 4 * (64 * 2 + 4));
  EXPECT_EQ(value_pages_bytes(layout, 0, 129), 2u * (64 * 32 + 256 + 4) + 64 * 256);
  EXPECT_EQ(append_bytes(layout, 2), 2u * (1024 + 256 + 256));
  EXPECT_EQ(seal_bytes(layout), 2 * (64u * 256 + 64 * 32 + 256));
  layout = layout.without_slices();
  EXPECT_EQ(append_bytes(layout, 1), 1024u);
  EXPECT_EQ(seal_bytes(layout), 0u);
}

// The closed forms against counting.
TEST(KernelWork, PairsOfAPrompt) {
  std::mt19937 random(3);
  const auto pick = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
  for (int round = 0; round < 500; ++round) {
    const int64_t start = pick(300), tokens = pick(90), begin = pick(400), end = pick(400);
    const int64_t window = round % 2 == 0 ? 0 : 1 + pick(200);
    int64_t pairs = 0;
    for (int64_t query = start; query < start + tokens; ++query) {
      for (int64_t key = begin; key < end; ++key) {
        pairs += key <= query && (window == 0 || key > query - window);
      }
    }
    ASSERT_EQ(causal_pairs(start, tokens, window, begin, end), pairs)
        << start << " " << tokens << " " << window << " " << begin << " " << end;
  }
}

TEST(KernelWork, PrefillByHand) {
  CacheLayout layout;
  layout.kv_heads = 8;
  layout.gqa_group = 4;
  layout.row = {DType::kBF16, 128, 128};
  // Pages 2 and 3 of the past: 100 tokens see all of it; their states are loaded and stored.
  const KernelWork wave = prefill_work(
      layout,
      {.start = 640, .tokens = 100, .begin_page = 2, .end_page = 4, .first = false, .last = false},
      DType::kBF16);
  EXPECT_EQ(wave.operations, 100u * 128 * 32 * 4 * 128);
  EXPECT_EQ(wave.device_bytes, 128u * 8 * 512 + 2u * 100 * 32 * 130 * 4);
  const KernelWork whole =
      prefill_work(layout, {.start = 0, .tokens = 64, .end_page = 1}, DType::kBF16);
  EXPECT_EQ(whole.operations, 64u * 65 / 2 * 32 * 512);
  EXPECT_EQ(whole.device_bytes, 64u * 8 * 512 + 64u * 32 * 128 * 2);
  EXPECT_EQ(pair_operations(layout, DType::kF32), 6u * 128);
  layout.row.dtype = RowDType::kF32;
  EXPECT_EQ(pair_operations(layout, DType::kF32), 4u * 128);
}

}  // namespace
}  // namespace fasa
