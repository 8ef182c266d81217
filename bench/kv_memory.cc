// Device memory of the KV cache against full KV in bf16, counted on a real runtime: everything is
// allocated and filled, including hot rows, fetch buffers and tables. Host rows may share physical
// memory (--alias), so that 16 GiB of them fit a small machine.
//
//   kv_memory [--tokens N] [--layers N] [--k N] [--row-dtype DTYPE] [--alias SIZE]
//
// With --growth, host memory instead: one layer's rows and slices on the cpu device, appended chunk
// by chunk without announcing the total. A cache that moved its data would need the old and the new
// memory at once; this one's process uses the memory that the design says.
//
//   kv_memory --growth [--tokens N]
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>

#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "tests/support/filled_runtime.h"

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
  int low_bit_tokens = 0;
  std::string row_dtype = "bf16";
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
  const bool whole_keys = format.chunks == geometry.chunks();
  config.selection.low_bit_tokens = {.tokens = whole_keys ? options.low_bit_tokens : 0, .share = 0};
  config.placement.row_dtype = parse_row_dtype(options.row_dtype);
  FilledRuntime filled(device, config, geometry, first_chunk_dims(geometry, format.chunks),
                       options.tokens);
  // One real decode step: its scratch is counted; the prefill's has been freed.
  const std::vector<uint16_t> q = random_bf16(4096, 3);
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
  fmt::print("{:>5} {:>4} {:>12} {:>12} {:>12} {:>12} {:>12} {:>7.2f}x {:>12} {:>12}\n",
             slice_dtype_name(format.dtype), format.chunks, format_bytes(memory.device_slices),
             format_bytes(memory.device_hot_rows), format_bytes(memory.device_scratch),
             format_bytes(memory.device_total()), format_bytes(full),
             static_cast<double>(full) / static_cast<double>(memory.device_total()),
             format_bytes(memory.host_total()), format_bytes(peak_process_bytes()));
}

// Appends `tokens` tokens to one sequence of one layer. Prints after every eighth the expected size
// of the cache and the growth of the process.
void measure_growth(int64_t tokens) {
  constexpr int kChunk = 4096;
  const Geometry geometry = llama_8b(1);
  DeviceOptions options;
  options.name = "cpu";
  const auto device = open_device(options);
  const std::vector<int16_t> dims = first_chunk_dims(geometry, 64);
  Runtime runtime(*device, Config{}, geometry, DType::kBF16, dims);
  const Stream stream = device->create_stream(StreamPriority::kNormal, "compute");
  const SequenceId sequence = runtime.create();
  const std::vector<uint16_t> values = random_bf16(kChunk * 1024, 1);
  const auto kv = [&](int64_t count) {
    return ConstTensorView::dense(values.data(), DType::kBF16, count, 8, 128);
  };
  const uint64_t before = peak_process_bytes();
  fmt::print("{:>9} {:>12} {:>12} {:>9}\n", "tokens", "design", "process", "more");
  for (int64_t done = 0; done < tokens;) {
    const auto now = static_cast<int>(std::min<int64_t>(kChunk, tokens - done));
    const StepSequence part{sequence, now, StepMode::kPrefill};
    runtime.begin_step({&part, 1});
    runtime.append(0, kv(now), kv(now), stream.view());
    runtime.end_step();
    const int64_t eighth = std::max<int64_t>(tokens / 8, 1);
    const bool say = (done + now) / eighth != done / eighth;
    done += now;
    if (!say) continue;
    const auto design = static_cast<double>(runtime.estimate_memory(done, kChunk).device_total());
    const uint64_t grown = peak_process_bytes() - before;
    fmt::print("{:>9} {:>12} {:>12} {:>+8.2f}%\n", done,
               format_bytes(static_cast<uint64_t>(design)), format_bytes(grown),
               (static_cast<double>(grown) / design - 1) * 100);
  }
  const TransferTotals moved = device->transfers();
  fmt::print("copied inside the device or to it: {}, all of it tables\n",
             format_bytes(moved.h2d_bytes));
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  CLI::App app{"Device memory of the KV cache, Llama-3.1-8B geometry, rows on the host"};
  fasa::bench::Options options;
  bool growth = false;
  app.add_flag("--growth", growth, "host memory while one layer grows");
  CLI::Option* tokens =
      app.add_option("--tokens", options.tokens, "context length")->capture_default_str();
  app.add_option("--layers", options.layers, "layers")->capture_default_str();
  app.add_option("--k", options.k, "fac_tokens")->capture_default_str();
  app.add_option("--low-bit-tokens", options.low_bit_tokens,
                 "low_bit_tokens, with slices of all FCs")
      ->capture_default_str();
  app.add_option("--row-dtype", options.row_dtype, "how rows are stored")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}))
      ->capture_default_str();
  app.add_option("--alias", options.alias, "physical memory that all host rows share, e.g. 1GiB");
  CLI11_PARSE(app, argc, argv);
  try {
    if (growth) {
      fasa::bench::measure_growth(tokens->count() > 0 ? options.tokens : int64_t{1} << 20);
      return 0;
    }
    fmt::print(
        "{} tokens, {} layers, k = {} and {} low-bit, rows in {}\n{:>5} {:>4} {:>12} {:>12} {:>12} "
        "{:>12} {:>12} {:>8} {:>12} {:>12}\n",
        options.tokens, options.layers, options.k, options.low_bit_tokens, options.row_dtype,
        "slice", "FCs", "slices", "hot rows", "scratch", "device", "full KV", "smaller", "host",
        "process");
    for (const auto& format : fasa::bench::kFormats) fasa::bench::measure(options, format);
  } catch (const fasa::Error& error) {
    fmt::print(stderr, "kv_memory: {}\n", error.what());
    return static_cast<int>(error.kind());
  }
  return 0;
}
