// Time to the next token of a long conversation that is on disk and not in the system's cache: with
// all of it read first, and with slices read first and rows as steps select them. Attention only,
// no weights.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>

#include "offload/open_device.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/serve/session_suspension.h"
#include "tests/support/filled_runtime.h"

namespace fasa::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string dir;
  int layers = 8;
  int64_t tokens = 100000;
  int steps = 4;
  bool low_bit = true;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void drop_from_cache(const std::string& dir) {
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    ::fdatasync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

// Random keys, values and queries of a token; they differ in each step, so that sets differ.
void decode(FilledRuntime& filled, SequenceId sequence, uint64_t seed) {
  Runtime& runtime = filled.runtime();
  const Geometry& g = runtime.geometry();
  const auto dim = static_cast<size_t>(g.key_dim);
  const StepSequence part{sequence, 1, StepMode::kDecode};
  const auto kv = random_bf16(static_cast<size_t>(g.kv_heads) * dim, seed);
  std::vector<float> out(static_cast<size_t>(g.query_heads) * dim);
  runtime.begin_step({&part, 1});
  for (int layer = 0; layer < g.layers; ++layer) {
    const auto q = random_bf16(static_cast<size_t>(g.query_heads) * dim,
                               seed * 100 + static_cast<uint64_t>(layer));
    const auto of = [&](const std::vector<uint16_t>& data, int heads) {
      return ConstTensorView::dense(data.data(), DType::kBF16, 1, heads, g.key_dim);
    };
    runtime.append(layer, of(kv, g.kv_heads), of(kv, g.kv_heads), filled.stream());
    runtime.attend(layer, of(q, g.query_heads),
                   TensorView::dense(out.data(), DType::kF32, 1, g.query_heads, g.key_dim), nullptr,
                   filled.stream());
  }
  runtime.end_step();
  filled.device().synchronize(filled.stream());
}

void resume(FilledRuntime& filled, serve::SessionSuspension& suspension,
            const serve::SuspendedPrefix& suspended, bool rows_later, const Options& options) {
  drop_from_cache(options.dir);
  const uint64_t before = suspension.status().read_bytes;
  const auto begin = Clock::now();
  const SequenceId sequence = filled.runtime().create();
  serve::Resuming resuming{suspended, rows_later};
  while (filled.runtime().length(sequence) < suspended.tokens)
    suspension.resume_some(resuming, sequence);
  const double resumed = seconds_since(begin);
  const uint64_t first = suspension.status().read_bytes - before;
  fmt::print("{}: {:.3f} s and {:.1f} MB before the first step;", rows_later ? "slices" : "all",
             resumed, static_cast<double>(first) * 1e-6);
  for (int step = 0; step < options.steps; ++step) {
    decode(filled, sequence, 7 + static_cast<uint64_t>(step));
    fmt::print(" {:.3f} s, {:.1f} MB;", seconds_since(begin),
               static_cast<double>(suspension.status().read_bytes - before) * 1e-6);
  }
  fmt::print("\n");
  filled.runtime().free(sequence);
}

void run(const Options& options) {
  Config config;
  if (!options.low_bit) config.selection.low_bit_tokens = TokenCount{.tokens = 0, .share = 0};
  const Geometry geometry = llama_8b(options.layers);
  DeviceOptions device;
  device.name = "cpu";
  FilledRuntime filled(device, config, geometry, all_slice_dims(geometry), options.tokens);
  serve::PrefixCache cache(filled.runtime(), 0);
  serve::SessionSuspension suspension({.dir = options.dir, .fingerprint = "bench"},
                                      filled.runtime(), cache);
  serve::Conversation conversation;
  for (int64_t i = 0; i < options.tokens; ++i) {
    conversation.log.append(1, Computed::kPrefill);
  }
  cache.insert(std::move(conversation), filled.sequence());
  serve::CachedSession& cached = cache.sessions().back();
  suspension.suspend_all();
  while (suspension.suspend_some(Clock::now())) continue;
  const PageBytes page = filled.runtime().traits().page;
  fmt::print(
      "{} tokens, {} layers: rows {:.1f} MB, slices {:.1f} MB, on disk {:.1f} MB\n", options.tokens,
      options.layers,
      static_cast<double>(page.rows * static_cast<size_t>(pages_of(options.tokens))) * 1e-6,
      static_cast<double>(page.slices * static_cast<size_t>(options.tokens / kPageTokens)) * 1e-6,
      static_cast<double>(suspension.status().disk_bytes) * 1e-6);
  for (const bool rows_later : {false, true, false, true}) {
    resume(filled, suspension, *cached.suspended, rows_later, options);
  }
  cache.forget(cached.id);
  suspension.drop_unwanted();
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  fasa::bench::Options options;
  CLI::App app("The next token of a conversation on disk: bench/cold_session --dir DIR");
  app.add_option("--dir", options.dir, "An empty folder on the disk that is measured")->required();
  app.add_option("--layers", options.layers, "Layers of Llama-3.1-8B's attention");
  app.add_option("--tokens", options.tokens);
  app.add_option("--steps", options.steps);
  app.add_flag("!--no-low-bit", options.low_bit, "Without a low-bit set and its value codes");
  CLI11_PARSE(app, argc, argv);
  fasa::bench::run(options);
}
