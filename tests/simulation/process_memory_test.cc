// The process grows by the memory that memory() reports: a sequence of a million tokens, one layer
// of an 8 B model. Takes 5 GiB, so it is a part of the long run (FASA_LONG=1).
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string_view>
#include <vector>

#include "tests/support/filled_runtime.h"

namespace fasa::testing {
namespace {

// Excludes freed memory that the allocator kept.
uint64_t resident_bytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

bool long_run() {
  const char* wanted = std::getenv("FASA_LONG");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

DeviceOptions emulated() {
  DeviceOptions options;
  options.name = "emulated";
  return options;
}

// Decodes a token: its scratch is used, and the scratch of the fill, which attended to nothing, is
// freed.
void decode_one(FilledRuntime& filled) {
  Runtime& runtime = filled.runtime();
  const Geometry& g = runtime.geometry();
  const std::vector<uint16_t> k(static_cast<size_t>(g.kv_heads * g.key_dim));
  const std::vector<uint16_t> q(static_cast<size_t>(g.query_heads * g.key_dim));
  std::vector<float> out(static_cast<size_t>(g.query_heads * g.value_dim));
  const StepSequence step{filled.sequence(), 1, StepMode::kDecode};
  runtime.begin_step({&step, 1});
  const auto row = ConstTensorView::dense(k.data(), DType::kBF16, 1, g.kv_heads, g.key_dim);
  runtime.append(0, row, row, filled.stream());
  runtime.attend(0, ConstTensorView::dense(q.data(), DType::kBF16, 1, g.query_heads, g.key_dim),
                 TensorView::dense(out.data(), DType::kF32, 1, g.query_heads, g.value_dim), nullptr,
                 filled.stream());
  runtime.end_step();
  filled.device().synchronize(filled.stream());
}

double growth_to_said(int64_t tokens) {
  const Geometry geometry = llama_8b(1);
  const Config config;
  {
    // Memory that a process allocates once: threads, their scratch, the noise pool, the allocator's
    // own.
    const FilledRuntime first(emulated(), config, geometry,
                              first_chunk_dims(geometry, geometry.chunks()), 4096);
  }
  const uint64_t before = resident_bytes();
  FilledRuntime filled(emulated(), config, geometry, first_chunk_dims(geometry, geometry.chunks()),
                       tokens);
  decode_one(filled);
  const KvMemory memory = filled.runtime().memory();
  const auto grown = static_cast<double>(resident_bytes() - before);
  const auto said = static_cast<double>(memory.device_total() + memory.host_total());
  std::cout << tokens << " tokens: memory() says " << said / 1e6 << " MB, the process grew by "
            << grown / 1e6 << " MB\n";
  return grown / said;
}

TEST(ProcessMemory, GrowsByWhatMemorySays) {
  if (!long_run()) GTEST_SKIP() << "a million tokens: FASA_LONG=1";
  EXPECT_NEAR(growth_to_said(1'000'000), 1, 0.005);
}

}  // namespace
}  // namespace fasa::testing
