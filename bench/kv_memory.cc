// Device memory of the KV cache against full KV in bf16, counted on a real runtime: everything is
// allocated and filled, hot rows, staging, tables and all. Host rows may share physical memory
// (--alias), so that 16 GiB of them fit a small machine.
//
//   kv_memory [--tokens N] [--layers N] [--k N] [--alias SIZE]
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>

#include "bench/filled_runtime.h"
#include "runtime/base/error.h"
#include "runtime/base/units.h"

namespace fasa::bench {
namespace {

struct Format {
  SliceDType dtype;
  int chunks;
};
constexpr Format kFormats[] = {{SliceDType::kBF16, 16},
                               {SliceDType::kInt8, 16},
                               {SliceDType::kInt2, 64},
                               {SliceDType::kInt2, 32}};

struct Options {
  int64_t tokens = 131072;
  int layers = 32;
  int k = 256;
  std::string alias;
};

uint64_t peak_process_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

void measure(const Options& options, Format format) {
  const Geometry geometry = llama_8b(options.layers);
  DeviceOptions device;
  device.name = "emulated";
  if (!options.alias.empty()) device.host_alias_bytes = parse_bytes(options.alias).value();
  Config config;
  config.selection.slice_dtype = format.dtype;
  config.selection.tip_chunks = format.chunks;
  config.selection.fac_tokens = {{.tokens = options.k, .share = 0}};
  FilledRuntime filled(device, config, geometry, first_chunk_dims(geometry, format.chunks),
                       options.tokens);
  // One real decode step: its scratch counts, the prefill's is gone.
  const std::vector<uint16_t> q = noise(4096, 3);
  std::vector<float> out(4096);
  Device& emulated = filled.device();
  Buffer q_device = emulated.allocate(MemorySpace::kDevice, q.size() * 2, "query");
  Buffer out_device = emulated.allocate(MemorySpace::kDevice, out.size() * 4, "output");
  emulated.copy(q_device.data(), q.data(), q.size() * 2, CopyKind::kHostToDevice, filled.stream());
  const StepSequence part{filled.sequence(), 1, StepMode::kDecode};
  filled.runtime().begin_step({&part, 1});
  for (int layer = 0; layer < options.layers; ++layer) {
    const auto kv = ConstTensorView::dense(q_device.data(), DType::kBF16, 1, 8, 128);
    filled.runtime().append(layer, kv, kv, filled.stream());
    filled.runtime().attend(
        layer, ConstTensorView::dense(q_device.data(), DType::kBF16, 1, 32, 128),
        TensorView::dense(out_device.data(), DType::kF32, 1, 32, 128), nullptr, filled.stream());
  }
  filled.runtime().end_step();
  emulated.synchronize(filled.stream());

  const KvMemory memory = filled.runtime().memory();
  const uint64_t full = uint64_t{2} * 2 * 128 * 8 * static_cast<uint64_t>(options.layers) *
                        static_cast<uint64_t>(options.tokens + 1);
  fmt::print("{:>5} {:>4} {:>12} {:>12} {:>12} {:>12} {:>12} {:>7.2f}x {:>12}\n",
             slice_dtype_name(format.dtype), format.chunks, format_bytes(memory.device_slices),
             format_bytes(memory.device_hot_rows), format_bytes(memory.device_scratch),
             format_bytes(memory.device_total()), format_bytes(full),
             static_cast<double>(full) / static_cast<double>(memory.device_total()),
             format_bytes(peak_process_bytes()));
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  CLI::App app{"Device memory of the KV cache, Llama-3.1-8B geometry, bf16 rows on the host"};
  fasa::bench::Options options;
  app.add_option("--tokens", options.tokens, "context length")->capture_default_str();
  app.add_option("--layers", options.layers, "layers")->capture_default_str();
  app.add_option("--k", options.k, "fac_tokens")->capture_default_str();
  app.add_option("--alias", options.alias, "physical memory that all host rows share, e.g. 1GiB");
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print(
        "{} tokens, {} layers, k = {}\n{:>5} {:>4} {:>12} {:>12} {:>12} {:>12} {:>12} {:>8} "
        "{:>12}\n",
        options.tokens, options.layers, options.k, "slice", "FCs", "slices", "hot rows", "scratch",
        "device", "full KV", "smaller", "process");
    for (const auto& format : fasa::bench::kFormats) fasa::bench::measure(options, format);
  } catch (const fasa::Error& error) {
    fmt::print(stderr, "kv_memory: {}\n", error.what());
    return static_cast<int>(error.kind());
  }
  return 0;
}
