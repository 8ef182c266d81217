// The reduction of the KV cache's device memory: an estimate for relevant sizes, and a filled cache
// that the estimate must match.
#include <gtest/gtest.h>

#include "offload/open_device.h"
#include "tests/support/filled_runtime.h"

namespace fasa::bench {
namespace {

struct Format {
  SliceDType dtype;
  int chunks;
  double at_least;  // reduction against full KV in bf16
  int low_bit = 0;  // tokens, with value codes of this many bits
};

DeviceOptions emulated() {
  DeviceOptions options;
  options.name = "emulated";
  options.host_alias_bytes = uint64_t{64} << 20;
  return options;
}

Config config_of(const Format& format, int k) {
  Config config;
  config.selection.slice_dtype = format.dtype;
  config.selection.tip_chunks = format.chunks;
  config.selection.fac_tokens = {{.tokens = k, .share = 0}};
  config.selection.low_bit_tokens = {.tokens = format.low_bit, .share = 0};
  if (format.low_bit > 0) config.selection.value_codes = format.dtype;
  return config;
}

uint64_t full_bytes(const Geometry& g, int64_t tokens) {
  return uint64_t{2} * static_cast<uint64_t>((g.key_dim + g.value_dim) * g.kv_heads * g.layers) *
         static_cast<uint64_t>(tokens);
}

void expect_smaller(const Geometry& geometry, int64_t tokens, int k, const Format& format) {
  const auto device = open_device(emulated());
  const Runtime runtime(*device, config_of(format, k), geometry, DType::kBF16,
                        first_chunk_dims(geometry, format.chunks), tokens);
  const double ratio = static_cast<double>(full_bytes(geometry, tokens)) /
                       static_cast<double>(runtime.estimate_memory(tokens, 1).device_total());
  EXPECT_GE(ratio, format.at_least) << slice_dtype_name(format.dtype) << " " << format.chunks;
}

TEST(Memory, Llama8bAt128k) {
  for (const Format& format :
       {Format{SliceDType::kBF16, 16, 7.5}, Format{SliceDType::kInt8, 16, 14},
        Format{SliceDType::kInt2, 64, 13}, Format{SliceDType::kInt2, 32, 24},
        Format{SliceDType::kInt2, 64, 6.5, 512}}) {
    expect_smaller(llama_8b(32), 131072, 256, format);
  }
}

TEST(Memory, SmallModelAt8k) {
  Geometry geometry = llama_8b(4);
  geometry.kv_heads = 2;
  geometry.query_heads = 4;
  geometry.key_dim = geometry.value_dim = geometry.rotary_dims = 64;
  for (const Format& format :
       {Format{SliceDType::kBF16, 8, 6}, Format{SliceDType::kInt8, 8, 9},
        Format{SliceDType::kInt2, 32, 8.5}, Format{SliceDType::kInt2, 16, 12}}) {
    expect_smaller(geometry, 8192, 128, format);
  }
}

TEST(Memory, EstimateHolds) {
  constexpr int64_t kTokens = 16384;
  const Geometry geometry = llama_8b(4);
  for (const int low_bit : {0, 512}) {
    const Format format{SliceDType::kInt2, 64, 0, low_bit};
    FilledRuntime filled(emulated(), config_of(format, 256), geometry,
                         first_chunk_dims(geometry, 64), kTokens);
    const KvMemory held = filled.runtime().memory();
    // Compared with the device's own counters.
    EXPECT_EQ(held.device_total(), filled.device().memory(MemorySpace::kDevice).used_bytes);
    // The fill runs as prefill chunks: their scratch is the only other device memory.
    const KvMemory estimated =
        filled.runtime().estimate_memory(kTokens + FilledRuntime::kRoom, 2048);
    EXPECT_EQ(held.device_slices, estimated.device_slices);
    EXPECT_EQ(held.device_hot_rows, estimated.device_hot_rows);
    EXPECT_EQ(held.host_rows, estimated.host_rows);
    EXPECT_NEAR(static_cast<double>(held.device_needed()),  // long waves are extra
                static_cast<double>(estimated.device_total()),
                0.02 * static_cast<double>(estimated.device_total()));
  }
}

// Layers that share keys and values take hot rows and nothing else.
TEST(Memory, OnlyLayersThatStoreCount) {
  constexpr int64_t kTokens = 5000;
  constexpr int kSharing = 3;
  Geometry sharing = llama_8b(5);
  sharing.kv_heads = 2;
  sharing.query_heads = 4;
  sharing.key_dim = sharing.value_dim = sharing.rotary_dims = 64;
  sharing.windows = {512, 0, 512, 0, 0};
  sharing.shared_layers = kSharing;
  Geometry storing = sharing;
  storing.layers -= kSharing;
  storing.windows.resize(static_cast<size_t>(storing.layers));
  storing.shared_layers = 0;
  for (const RowPlacement rows : {RowPlacement::kHost, RowPlacement::kDevice}) {
    Config config = config_of({SliceDType::kInt2, 32, 0, 512}, 256);
    config.placement.rows = rows;
    config.placement.hot_rows = 600;
    FilledRuntime one(emulated(), config, sharing, first_chunk_dims(sharing, 32), kTokens);
    FilledRuntime other(emulated(), config, storing, first_chunk_dims(storing, 32), kTokens);
    for (const bool estimated : {false, true}) {
      const auto memory = [&](FilledRuntime& filled) {
        return estimated ? filled.runtime().estimate_memory(kTokens, 1) : filled.runtime().memory();
      };
      const KvMemory shared = memory(one), stored = memory(other);
      EXPECT_GT(stored.device_slices, 0u);
      EXPECT_EQ(shared.device_slices, stored.device_slices);
      EXPECT_EQ(shared.device_rows, stored.device_rows);
      EXPECT_EQ(shared.host_rows, stored.host_rows);
      // Rows and table of two more layers without a window.
      const uint64_t hot = rows == RowPlacement::kDevice ? 0 : 2 * 2 * 600 * (256 + 8);
      EXPECT_EQ(shared.device_hot_rows, stored.device_hot_rows + hot);
    }
    EXPECT_EQ(one.runtime().traits().page.rows, other.runtime().traits().page.rows);
    EXPECT_EQ(one.runtime().traits().page.slices, other.runtime().traits().page.slices);
  }
}

}  // namespace
}  // namespace fasa::bench
