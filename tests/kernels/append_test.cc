#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/append_case.h"

namespace fasa {
namespace {

TEST(AppendTest, SameBytesAsReference) {
  for (const RowShape& shape : append_shapes()) {
    RowCase fast(shape, {5, 6}, 400);
    RowCase slow(shape, {5, 6}, 400);
    const std::vector<std::vector<Advance>> steps = {
        {{0, 100}, {1, 1}},
        {{1, 63}, {0, 28}},
        {{0, 1, StepMode::kDecode}, {1, 1, StepMode::kDecode}},
        {{1, 200}, {0, 1, StepMode::kDecode}},
        {{0, 9, StepMode::kDecode}, {1, kMaxDecoded, StepMode::kDecode}},
        {{0, 130}}};
    for (const auto& step : steps) {
      fast.advance(step);
      slow.advance(step, true);
      for (int s = 0; s < 2; ++s) {
        expect_same(fast, fast.sequence(s), slow.sequence(s), true);
      }
    }
  }
}

TEST(AppendTest, SplitDoesNotMatter) {
  constexpr int kTokens = 261;
  for (const RowShape& shape : append_shapes()) {
    RowCase whole(shape, {3}, 300);
    whole.advance({{0, kTokens}});
    for (const int chunk : {1, 7, 64, 100, 256}) {
      RowCase split(shape, {3}, 300);
      while (split.sequence(0).length < kTokens) {
        const int left = kTokens - split.sequence(0).length;
        split.advance(
            {{0, std::min(chunk, left), chunk == 1 ? StepMode::kDecode : StepMode::kPrefill}});
      }
      expect_same(whole, whole.sequence(0), split.sequence(0), !shape.on_device);
    }
  }
}

TEST(AppendTest, PlacementAndBatchDoNotMatter) {
  for (RowShape shape : append_shapes()) {
    shape.on_device = true;
    RowCase device(shape, {1, 2, 3}, 200);
    device.advance({{0, 65}, {1, 64}, {2, 191}});
    shape.on_device = false;
    RowCase host(shape, {1, 2, 3}, 200);
    host.advance({{2, 191}});
    host.advance({{0, 65}});
    host.advance({{1, 64}});
    for (int s = 0; s < 3; ++s) expect_same(device, device.sequence(s), host.sequence(s), false);
  }
}

TEST(AppendTest, ThreadsDoNotMatter) {
  for (const RowShape& shape : append_shapes()) {
    RowCase one(shape, {1}, 400);
    RowCase two(shape, {1}, 400);
    tbb::task_arena(1).execute([&] { one.advance({{0, 390}}); });
    tbb::task_arena(2).execute([&] { two.advance({{0, 390}}); });
    expect_same(one, one.sequence(0), two.sequence(0), !shape.on_device);
  }
}

TEST(AppendTest, RowsAreRoundedAndPadded) {
  RowShape shape;
  shape.kv_heads = 1, shape.key_dim = 2, shape.value_dim = 1;
  RowCase cache(shape, {0}, 64);
  cache.set_input([](InputKind kind, int, int, int, int, int) {
    return kind == InputKind::kKey ? 1.0f + 0x1p-8f + 0x1p-20f : -INFINITY;
  });
  cache.advance({{0, 1}});
  const std::byte* row = cache.sequence(0).row_blocks[0];
  EXPECT_EQ(load_element(DType::kBF16, row, 0), 1.0f + 0x1p-7f);  // above the tie: up
  EXPECT_EQ(load_element(DType::kBF16, row, 2), -INFINITY);
  for (int64_t at = 6; at < cache.layout().row.bytes(); ++at) EXPECT_EQ(row[at], std::byte{0});
}

// Local rows that have homes on the host are the same bytes there.
TEST(AppendTest, LocalRowsAreWrittenBack) {
  RowShape shape;
  shape.layers = 2, shape.written_back = true;
  RowCase fast(shape, {0, 1}, 200), slow(shape, {0, 1}, 200);
  for (const auto& advances : {std::vector<Advance>{{0, 70}, {1, 130}},
                               std::vector<Advance>{{0, 1, StepMode::kDecode}, {1, 30}},
                               std::vector<Advance>{{0, 64}, {1, 1, StepMode::kDecode}}}) {
    fast.advance(advances);
    slow.advance(advances, true);
  }
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(fast.sequence(s).homes, slow.sequence(s).homes);
    EXPECT_EQ(fast.sequence(s).homes, fast.sequence(s).rows);
    EXPECT_EQ(fast.sequence(s).tail, slow.sequence(s).tail);
  }
}

TEST(AppendTest, WorkCountsTheLink) {
  RowShape shape;
  shape.on_device = false;
  RowCase cache(shape, {0, 1}, 200);
  RowStep step = cache.begin({{0, 70}, {1, 1, StepMode::kDecode}});
  cache.append(step);
  const WriteBackParams params = {cache.params(step, 0)};
  const KernelWork work = cpu::run(params);
  EXPECT_EQ(work.d2h_bytes, 71u * 2 * static_cast<uint64_t>(cache.layout().row.bytes()));
  EXPECT_EQ(work.h2d_bytes, 0u);
}

}  // namespace
}  // namespace fasa
