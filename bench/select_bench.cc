// TIP alone: score + select of one layer, 8 KV heads x 4 query heads, rotating over layers so that
// the slices come from memory.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/slice_pack.h"

namespace fasa {
namespace {

constexpr int kKvHeads = 8;
constexpr int kGroup = 4;
constexpr int64_t kFootprint = int64_t{1} << 30;

class Cache {
 public:
  Cache(SliceFormat format, int tokens) {
    layout_.kv_heads = kKvHeads;
    layout_.group = kGroup;
    layout_.slice = format;
    layout_.sinks = 4;
    layout_.recent = 16;
    const int64_t pages = (tokens - 1) / kPageTokens;
    layout_.layers = 1;
    layout_.layers =
        static_cast<int>(std::max<int64_t>(1, kFootprint / (pages * layout_.slice_block_bytes())));
    const int64_t block = align_up(layout_.slice_block_bytes(), 4096);
    bytes_ = static_cast<size_t>(block * pages);
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(memory_, bytes_, MADV_HUGEPAGE);
    tail_.resize(static_cast<size_t>(layout_.tail_bytes()));
    for (int d = 0; d < kKvHeads * format.dims; ++d) {
      dims_.push_back(static_cast<int16_t>(d % format.dims));
    }
    fill(pages, block);
    desc_.tokens = 1;
    desc_.start = tokens - 1;
    desc_.slice_blocks = blocks_.data();
    desc_.tail = tail_.data();
    for (int i = 0; i < kKvHeads * kGroup * format.dims; ++i) query_.push_back(normal_(random_));
    sets_.resize(static_cast<size_t>(kKvHeads) * 4096);
    sizes_.resize(kKvHeads);
  }
  ~Cache() { munmap(memory_, bytes_); }
  Cache(const Cache&) = delete;  // owns the mapping
  Cache& operator=(const Cache&) = delete;

  int layers() const { return layout_.layers; }
  uint64_t select(int layer, int budget) {
    SelectParams params;
    params.step = {layout_, &desc_, 1, layer, dims_.data()};
    params.q = ConstTensorView::dense(query_.data(), DType::kF32, 1, layout_.query_heads(),
                                      layout_.slice.dims);
    params.budget.tokens = budget;
    params.set_capacity = 4096;
    params.sets = sets_.data();
    params.set_sizes = sizes_.data();
    return cpu::select(params).device_bytes;
  }

 private:
  // 64 different pages of Gaussian keys, repeated in a mixed order.
  void fill(int64_t pages, int64_t block) {
    const SliceFormat format = layout_.slice;
    constexpr int kDistinct = 512;
    const auto page_bytes = static_cast<size_t>(format.page_bytes());
    std::vector<std::byte> pool(kDistinct * page_bytes);
    std::vector<float> bases(kDistinct, 1.0f);
    std::vector<std::byte> tail(static_cast<size_t>(format.tail().page_bytes()));
    std::vector<float> key(static_cast<size_t>(format.dims));
    for (size_t i = 0; i < kDistinct; ++i) {
      for (int t = 0; t < kPageTokens; ++t) {
        for (float& x : key) x = normal_(random_);
        cpu::write_tail_token(format.tail(), dims_.data(), DType::kF32, key.data(), t, tail.data());
      }
      cpu::seal_page(format, tail.data(), pool.data() + i * page_bytes, &bases[i]);
    }
    for (int64_t p = 0; p < pages; ++p) {
      std::byte* to = memory_ + p * block;
      blocks_.push_back(to);
      for (int l = 0; l < layout_.layers; ++l) {
        for (int h = 0; h < kKvHeads; ++h) {
          const size_t i = random_() % kDistinct;
          std::memcpy(to + layout_.slice_offset(l, h), pool.data() + i * page_bytes, page_bytes);
          std::memcpy(to + layout_.head_index(l, h) * 4, &bases[i], 4);
        }
      }
    }
  }

  CacheLayout layout_;
  size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::vector<std::byte*> blocks_;
  std::vector<std::byte> tail_;
  std::vector<int16_t> dims_;
  SequenceDesc desc_;
  std::vector<float> query_;
  std::vector<int32_t> sets_;
  std::vector<int32_t> sizes_;
  std::mt19937 random_{1};
  std::normal_distribution<float> normal_;
};

void select_layer(benchmark::State& state, SliceDType dtype) {
  const auto tokens = static_cast<int>(state.range(1));
  const auto budget = static_cast<int>(state.range(2));
  Cache cache({dtype, static_cast<int>(state.range(0)) * 2}, tokens);
  int layer = 0;
  uint64_t bytes = 0;
  for (auto _ : state) {
    bytes += cache.select(layer, budget);
    layer = (layer + 1) % cache.layers();
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
  state.counters["layers"] = cache.layers();
}

void arguments(benchmark::internal::Benchmark* bench, std::vector<int64_t> chunks) {
  bench->ArgNames({"fcs", "tokens", "k"})->Unit(benchmark::kMillisecond)->UseRealTime();
  for (const int64_t fcs : chunks) {
    for (const int64_t tokens : {4096, 32768, 131072}) {
      for (const int64_t k : {256, 2048}) bench->Args({fcs, tokens, k});
    }
  }
}

BENCHMARK_CAPTURE(select_layer, bf16, SliceDType::kBF16)->Apply([](auto* b) {
  arguments(b, {16});
});
BENCHMARK_CAPTURE(select_layer, int8, SliceDType::kInt8)->Apply([](auto* b) {
  arguments(b, {16});
});
BENCHMARK_CAPTURE(select_layer, int4, SliceDType::kInt4)->Apply([](auto* b) {
  arguments(b, {64});
});
BENCHMARK_CAPTURE(select_layer, int2, SliceDType::kInt2)->Apply([](auto* b) {
  arguments(b, {32, 64});
});

}  // namespace
}  // namespace fasa

BENCHMARK_MAIN();
