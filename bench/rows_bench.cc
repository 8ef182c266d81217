// The kernels that read rows, against a floor measured in the same run: full attention and FAC
// against the bandwidth of a plain sum over memory, prefill against the FMA peak. The last
// argument: 2 = rows in bf16, 3 = in int8.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/parallel_reduce.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows/row_codec.h"

namespace fasa {
namespace {

constexpr int kKvHeads = 8;
constexpr int kGroup = 4;
constexpr int kHeadDim = 128;

CacheLayout layout_of(int layers, int64_t row_dtype) {
  CacheLayout layout;
  layout.layers = layers;
  layout.kv_heads = kKvHeads;
  layout.gqa_group = kGroup;
  layout.row = {static_cast<RowDType::Kind>(row_dtype), kHeadDim, kHeadDim};
  layout.slice = {SliceDType::kInt2, kHeadDim};
  layout.sinks = 4;
  layout.recent = 16;
  return layout;
}

struct Free {
  void operator()(std::byte* block) const { std::free(block); }
};
using Memory = std::unique_ptr<std::byte, Free>;

// On huge pages, as the host arenas are.
Memory allocate(size_t bytes) {
  constexpr size_t kHugePage = 2 << 20;
  const size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kHugePage, rounded)));
  madvise(memory.get(), rounded, MADV_HUGEPAGE);
  return memory;
}

// 128 KiB of rows of small values.
std::vector<std::byte> pattern_of(const RowFormat& format) {
  constexpr size_t kBytes = 1 << 17;
  std::vector<std::byte> pattern(kBytes);
  const auto row_bytes = static_cast<size_t>(format.bytes());
  std::vector<float> values(static_cast<size_t>(format.key_dim + format.value_dim));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (size_t at = 0; at < kBytes; at += row_bytes) {
    for (float& value : values) value = normal(random);
    const auto k = ConstTensorView::dense(values.data(), DType::kF32, 1, 1, format.key_dim);
    auto v = k;
    v.data = values.data() + format.key_dim;
    cpu::write_row(format, k, v, 0, 0, pattern.data() + at);
  }
  return pattern;
}

// One sequence of `tokens`, its rows filled with small values.
struct Rows {
  Rows(const CacheLayout& layout, int tokens)
      : pages((tokens + kPageTokens - 1) / kPageTokens),
        bytes(static_cast<size_t>(layout.row_block_bytes()) * static_cast<size_t>(pages)),
        data(allocate(bytes)) {
    const std::vector<std::byte> pattern = pattern_of(layout.row);
    tbb::parallel_for(size_t{0}, bytes >> 17, [&](size_t i) {
      std::memcpy(data.get() + (i << 17), pattern.data(), 1 << 17);
    });
    for (int page = 0; page < pages; ++page) {
      blocks.push_back(data.get() + page * layout.row_block_bytes());
    }
  }
  int pages;
  size_t bytes;
  Memory data;
  std::vector<std::byte*> blocks;
};

std::vector<float> random_floats(size_t count) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void report_bytes(benchmark::State& state, double bytes_per_iteration) {
  state.counters["GB/s"] =
      benchmark::Counter(bytes_per_iteration * static_cast<double>(state.iterations()) * 1e-9,
                         benchmark::Counter::kIsRate);
}

// The floor: all threads sum an array larger than any cache.
void BM_stream(benchmark::State& state) {
  const size_t count = size_t{1} << 28;  // 1 GiB
  const Memory memory = allocate(count * sizeof(uint32_t));
  uint32_t* values = reinterpret_cast<uint32_t*>(memory.get());
  tbb::parallel_for(size_t{0}, count >> 20, [&](size_t i) {
    std::fill_n(values + (i << 20), 1 << 20, static_cast<uint32_t>(i));
  });
  for (auto _ : state) {
    const uint32_t sum = tbb::parallel_reduce(
        tbb::blocked_range<size_t>(0, count, 1 << 18), uint32_t{0},
        [&](const tbb::blocked_range<size_t>& range, uint32_t part) {
          return std::accumulate(values + range.begin(), values + range.end(), part);
        },
        std::plus<>());
    benchmark::DoNotOptimize(sum);
  }
  report_bytes(state, static_cast<double>(count) * sizeof(uint32_t));
}
BENCHMARK(BM_stream)->UseRealTime()->Unit(benchmark::kMillisecond);

// Full attention of one token; layers rotate so that rows come from memory.
void BM_full_attention(benchmark::State& state) {
  const int tokens = static_cast<int>(state.range(0));
  const int layers = std::max(1, (4 << 20) / tokens / 4);
  const CacheLayout layout = layout_of(layers, state.range(1));
  const Rows rows(layout, tokens);
  const std::vector<float> q = random_floats(kKvHeads * kGroup * kHeadDim);
  std::vector<float> out(q.size());
  SequenceDesc sequence;
  sequence.tokens = 1;
  sequence.start = tokens - 1;
  sequence.row_blocks = rows.blocks.data();
  AttendParams params;
  params.step = {.layout = layout, .sequences = &sequence, .count = 1};
  params.q = ConstTensorView::dense(q.data(), DType::kF32, 1, kKvHeads * kGroup, kHeadDim);
  params.out = TensorView::dense(out.data(), DType::kF32, 1, kKvHeads * kGroup, kHeadDim);
  params.scale = 1 / std::sqrt(static_cast<float>(kHeadDim));
  params.end = tokens;
  for (auto _ : state) {
    cpu::run(params);
    params.step.layer = (params.step.layer + 1) % layers;
  }
  report_bytes(state, static_cast<double>(tokens) * kKvHeads * layout.row.bytes());
}
BENCHMARK(BM_full_attention)
    ->ArgsProduct({{8 << 10, 32 << 10, 128 << 10}, {2, 3}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// FAC over k rows of 128k, other rows each time.
void BM_fac(benchmark::State& state) {
  const int tokens = 128 << 10;
  const int k = static_cast<int>(state.range(0));
  const CacheLayout layout = layout_of(4, state.range(1));
  const Rows rows(layout, tokens);
  const std::vector<float> q = random_floats(kKvHeads * kGroup * kHeadDim);
  std::vector<float> out(q.size());
  SequenceDesc sequence;
  sequence.tokens = 1;
  sequence.start = tokens - 1;
  sequence.row_blocks = rows.blocks.data();

  constexpr int kDraws = 64;
  const size_t draw = static_cast<size_t>(kKvHeads) * static_cast<size_t>(k);
  std::vector<int32_t> all(tokens);
  std::iota(all.begin(), all.end(), 0);
  std::mt19937 random(3);
  std::vector<const std::byte*> pointers;
  for (int i = 0; i < kDraws * kKvHeads; ++i) {
    std::vector<int32_t> set;
    std::sample(all.begin(), all.end(), std::back_inserter(set), k, random);
    for (const int32_t position : set) {
      pointers.push_back(rows.blocks[static_cast<size_t>(position / kPageTokens)] +
                         layout.row_offset(i / kKvHeads % 4, i % kKvHeads, position % kPageTokens));
    }
  }
  const std::vector<int32_t> sizes(kKvHeads, k);
  AttendParams params;
  params.step = {.layout = layout, .sequences = &sequence, .count = 1};
  params.q = ConstTensorView::dense(q.data(), DType::kF32, 1, kKvHeads * kGroup, kHeadDim);
  params.out = TensorView::dense(out.data(), DType::kF32, 1, kKvHeads * kGroup, kHeadDim);
  params.scale = 1 / std::sqrt(static_cast<float>(kHeadDim));
  params.end = k;
  params.selected_sizes = sizes.data();
  size_t turn = 0;
  for (auto _ : state) {
    params.rows = pointers.data() + turn * draw;
    cpu::run(params);
    turn = (turn + 1) % kDraws;
  }
  report_bytes(state, static_cast<double>(draw) * static_cast<double>(layout.row.bytes()));
}
BENCHMARK(BM_fac)->ArgsProduct({{256, 2048}, {2, 3}})->UseRealTime()->Unit(benchmark::kMicrosecond);

// A chunk of 512 tokens after `start`; flops: 4 * head_dim per query head and visible key.
void BM_prefill(benchmark::State& state) {
  const int start = static_cast<int>(state.range(0));
  constexpr int kChunk = 512;
  const CacheLayout layout = layout_of(1, state.range(1));
  const Rows rows(layout, start + kChunk);
  const auto type = static_cast<DType>(state.range(2));  // of queries and outputs
  const std::vector<float> q = random_floats(kChunk * kKvHeads * kGroup * kHeadDim);
  std::vector<float> queries(q.size()), out(q.size());
  for (size_t i = 0; i < q.size(); ++i) {
    store_element(type, queries.data(), static_cast<int64_t>(i), q[i]);
  }
  SequenceDesc sequence;
  sequence.mode = StepMode::kPrefill;
  sequence.tokens = kChunk;
  sequence.start = start;
  sequence.row_blocks = rows.blocks.data();
  PrefillParams params;
  params.step = {.layout = layout, .sequences = &sequence, .count = 1};
  params.q = ConstTensorView::dense(queries.data(), type, kChunk, kKvHeads * kGroup, kHeadDim);
  params.out = TensorView::dense(out.data(), type, kChunk, kKvHeads * kGroup, kHeadDim);
  params.scale = 1 / std::sqrt(static_cast<float>(kHeadDim));
  params.end_page = rows.pages;
  for (auto _ : state) cpu::run(params);
  const double keys = static_cast<double>(kChunk) * (start + (kChunk + 1) / 2.0);
  state.counters["GFLOP/s"] = benchmark::Counter(
      keys * kKvHeads * kGroup * 4 * kHeadDim * static_cast<double>(state.iterations()) * 1e-9,
      benchmark::Counter::kIsRate);
}
BENCHMARK(BM_prefill)
    ->ArgsProduct({{0, 2048, 16384},
                   {RowDType::kBF16, RowDType::kInt8},
                   {static_cast<int64_t>(DType::kF32), static_cast<int64_t>(DType::kBF16)}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fasa

BENCHMARK_MAIN();
