// Performance of the pipeline on a GPU, against two ceilings measured in the same run: a copy
// within the device's memory, and a large copy from the host.
//
//   gpu_bench --device cuda:0 --seconds 240 --json FILE [--note name=value]...
//
// What FILE already has is not measured again, so a run that was cut off continues.
//
// One layer of Llama-3.1-8B's attention (8 KV x 4 query heads, head_dim 128, bf16 rows), batch 1,
// in steps over several layers, so that slices and rows come from memory and not from the L2. Keys,
// values and queries are noise; each query repeats most of the previous step's, so that sets
// overlap (see the hit rate). Times are measured on the device: a step's by two events, once as a
// graph and once enqueued call by call; kernels' by a timeline in separate steps. Cases that did
// not fit into memory or time are listed.
#include <fmt/format.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/gpu_host_memory.h"
#include "bench/gpu_projections.h"
#include "bench/gpu_results.h"
#include "offload/cuda/cuda_device.h"
#include "offload/open_device.h"
#include "offload/timeline/timeline.h"
#include "runtime/base/error.h"
#include "tests/support/filled_runtime.h"

namespace fasa::bench {
namespace {

using nlohmann::json;

constexpr int kHeads = 8;
constexpr int kQueryHeads = 32;
constexpr int kWidth = 128;
constexpr int kRowBytes = 512;

struct Options {
  std::string device = "cuda:0";
  double seconds = 240;
  std::string json_file;
  std::vector<std::string> notes;
  std::vector<int64_t> tokens = {131072, 16384, 1048576, 524288};
  std::vector<int> budgets = {256, 2048};
  std::vector<std::string> cases;  // parts of names; empty: all
  bool probe = false;
  bool copies = true;        // measures copies, gathers and projections, not only ceilings
  bool small_pages = false;  // no transparent huge pages
  std::optional<uint64_t> host_memory;
  std::optional<int> head_groups;
  bool kernel_times = true;
  bool graphs = true;
  int layers = 0;  // 0: by the context
  int steps = 20;
  uint64_t copy_bytes = uint64_t{1} << 30;
};

struct Case {
  std::string preset;  // fasa-c, fasa-m, full
  SliceDType slice = SliceDType::kInt2;
  int chunks = 64;
  int64_t tokens = 0;
  int budget = 256;
  int low_bit = 0;  // tokens of the low-bit set, or kAllOthers

  static constexpr int kAllOthers = -1;
  // Enough layers that their slices are several times the largest current L2 (50 MB, at 36 bytes
  // per token and head).
  int layers() const { return tokens <= 65536 ? 32 : 8; }
  std::string name() const {
    return preset == "full" ? fmt::format("full/{}", tokens)
                            : fmt::format("{}/{}x{}/{}/k{}{}", preset, slice_dtype_name(slice),
                                          chunks, tokens, budget,
                                          low_bit == kAllOthers ? "+all"
                                          : low_bit > 0         ? fmt::format("+{}", low_bit)
                                                                : "");
  }
};

std::unique_ptr<Device> open(const Options& options) {
  DeviceOptions device;
  device.name = options.device;
  device.host_memory = options.host_memory;
  device.kernel_times = options.kernel_times;
  return open_device(device);
}

// Bytes per second of copies of one kind, the best of five.
double copy_rate(Device& device, CopyKind kind, size_t bytes) {
  const bool inside = kind == CopyKind::kDeviceToDevice;
  const Stream stream = device.create_stream(StreamPriority::kNormal, "copies");
  const Event before = device.create_event(), after = device.create_event();
  const Buffer a = device.allocate(MemorySpace::kDevice, bytes, "copies");
  const Buffer b =
      device.allocate(inside ? MemorySpace::kDevice : MemorySpace::kHost, bytes, "copies");
  const bool to_host = kind == CopyKind::kDeviceToHost;
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    device.record(before.view(), stream.view());
    device.copy(to_host ? b.data() : a.data(), to_host ? a.data() : b.data(), bytes, kind,
                stream.view());
    device.record(after.view(), stream.view());
    device.synchronize(after.view());
    const double seconds = device.seconds_at(after.view()) - device.seconds_at(before.view());
    best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  return best;
}

// Bytes per second of 64 copies from the host, one by one and as one batch, by size: shows from
// which size on batches pay.
json batched_copies(CudaDevice& device) {
  constexpr size_t kCopies = 64;
  const Stream stream = device.create_stream(StreamPriority::kNormal, "copies");
  const Event before = device.create_event(), after = device.create_event();
  json rates = json::object();
  for (size_t bytes = 4 << 10; bytes <= 1 << 20; bytes *= 2) {
    const Buffer host = device.allocate(MemorySpace::kHost, 2 * kCopies * bytes, "copies");
    const Buffer there = device.allocate(MemorySpace::kDevice, kCopies * bytes, "copies");
    std::vector<CopyRange> ranges;
    for (size_t i = 0; i < kCopies; ++i) {
      ranges.push_back({there.data() + i * bytes, host.data() + 2 * i * bytes, bytes});
    }
    for (const bool batched : {false, true}) {
      device.set_least_batched(batched ? 0 : SIZE_MAX);
      double best = 0;
      for (int i = 0; i < 5; ++i) {
        device.record(before.view(), stream.view());
        device.copy_all(ranges, CopyKind::kHostToDevice, stream.view());
        device.record(after.view(), stream.view());
        device.synchronize(after.view());
        const double seconds = device.seconds_at(after.view()) - device.seconds_at(before.view());
        best = std::max(best, static_cast<double>(kCopies * bytes) / seconds);
      }
      rates[std::to_string(bytes)][batched ? "batched" : "one_by_one"] = best;
    }
  }
  device.set_least_batched(CudaDevice::kMinBatched);
  return rates;
}

Config config_of(const Options& options, const Case& wanted) {
  Config config;
  config.prefetch.head_groups = options.head_groups;
  config.device.graphs = options.graphs;
  config.selection.kind = wanted.preset == "full" ? SelectionKind::kFull : SelectionKind::kFasa;
  config.selection.slice_dtype = wanted.slice;
  config.selection.tip_chunks = wanted.chunks;
  config.selection.fac_tokens = {{.tokens = wanted.budget, .share = 0}};
  const bool all = wanted.low_bit == Case::kAllOthers;
  config.selection.low_bit_tokens =
      TokenCount{.tokens = all ? 0 : wanted.low_bit, .share = all ? 1.0 : 0.0};
  config.placement.rows = wanted.preset == "fasa-m" ? RowPlacement::kHost : RowPlacement::kDevice;
  return config;
}

// Decode steps of one case.
class Decode {
 public:
  Decode(const Options& options, const Case& wanted)
      : layers_(options.layers > 0 ? options.layers : wanted.layers()),
        filled_(open(options), config_of(options, wanted), llama_8b(layers_),
                first_chunk_dims(llama_8b(layers_), wanted.chunks), wanted.tokens),
        q_(device().allocate(MemorySpace::kDevice, query_bytes(), "queries")),
        kv_(device().allocate(MemorySpace::kDevice, kHeads * kWidth * 2, "keys and values")),
        out_(device().allocate(MemorySpace::kDevice, kQueryHeads * kWidth * 4, "output")),
        host_q_(random_bf16(query_bytes() / 2, 11)),
        begin_(device().create_event()),
        end_(device().create_event()) {
    const std::vector<uint16_t> kv = random_bf16(kHeads * kWidth, 12);
    device().copy(kv_.data(), kv.data(), kv.size() * 2, CopyKind::kHostToDevice, filled_.stream());
    device().synchronize(filled_.stream());
  }

  Device& device() { return filled_.device(); }

  // Seconds of a step's attention, all layers.
  double step(bool graph) {
    change_queries();
    const StepSequence part{filled_.sequence(), 1, StepMode::kDecode};
    Runtime& runtime = filled_.runtime();
    const StreamView stream = filled_.stream();
    runtime.begin_step({&part, 1});
    device().record(begin_.view(), stream);
    const auto enqueued = std::chrono::steady_clock::now();
    if (graph) {
      runtime.run_layers(stream, {}, [&] { enqueue(runtime, stream); });
    } else {
      enqueue(runtime, stream);
    }
    host_seconds_ =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - enqueued).count();
    device().record(end_.view(), stream);
    runtime.end_step();
    device().synchronize(end_.view());
    return device().seconds_at(end_.view()) - device().seconds_at(begin_.view());
  }

  json run(int steps) {
    json result = times(steps, true);
    const FetchMetrics metrics = filled_.runtime().metrics();
    const GraphMetrics graphs = filled_.runtime().graph_metrics();
    result.update(
        {{"layers", layers_},
         {"graph_steps", graphs.launched},
         {"graph_bytes", graphs.device_bytes},
         {"hit_rate", metrics.hit_rate()},
         {"fetched_rows_per_layer", static_cast<double>(metrics.rows.misses) / steps / layers_},
         {"enqueued", times(steps, false)},
         {"kernels_us", kernels(steps / 2 + 1)}});
    return result;
  }
  // Microseconds per layer: on the device, and of the host to enqueue it.
  json times(int steps, bool graphs) {
    for (int i = 0; i < 6; ++i) step(graphs);
    filled_.runtime().reset_metrics();
    std::vector<double> seconds, host_seconds;
    for (int i = 0; i < steps; ++i) {
      seconds.push_back(step(graphs));
      host_seconds.push_back(host_seconds_);
    }
    return {{"layer_us", median(seconds) / layers_ * 1e6},
            {"layer_us_min", *std::min_element(seconds.begin(), seconds.end()) / layers_ * 1e6},
            {"host_us", median(host_seconds) / layers_ * 1e6}};
  }

 private:
  // The runtime keeps the lengths, so the tensors stay the same.
  void enqueue(Runtime& runtime, StreamView stream) {
    for (int layer = 0; layer < layers_; ++layer) {
      const auto kv = ConstTensorView::dense(kv_.data(), DType::kBF16, 1, kHeads, kWidth);
      runtime.append(layer, kv, kv, stream);
      runtime.attend(layer,
                     ConstTensorView::dense(q_.data() + layer * kQueryHeads * kWidth * 2,
                                            DType::kBF16, 1, kQueryHeads, kWidth),
                     TensorView::dense(out_.data(), DType::kF32, 1, kQueryHeads, kWidth), nullptr,
                     stream);
    }
  }
  size_t query_bytes() const { return static_cast<size_t>(layers_) * kQueryHeads * kWidth * 2; }

  // Replaces a quarter of the elements.
  void change_queries() {
    const std::vector<uint16_t> fresh = random_bf16(host_q_.size() / 4, 100 + seed_);
    for (size_t i = 0; i < fresh.size(); ++i) host_q_[4 * i + seed_ % 4] = fresh[i];
    ++seed_;
    device().copy(q_.data(), host_q_.data(), query_bytes(), CopyKind::kHostToDevice,
                  filled_.stream());
    device().synchronize(filled_.stream());
  }

  // Microseconds of each kind of operation in a layer, from a timeline's events, which take some
  // time themselves.
  std::map<std::string, double> kernels(int steps) {
    Timeline timeline;
    device().set_timeline(&timeline);
    for (int i = 0; i < steps; ++i) step(false);
    device().set_timeline(nullptr);
    std::map<std::string, double> sums;
    for (const TimelineEntry& entry : timeline.entries()) {
      if (entry.kind != TimelineEntry::Kind::kWork || entry.tag.layer < 0) continue;
      sums[entry.name] += entry.span.seconds();
    }
    for (auto& [name, sum] : sums) sum *= 1e6 / steps / layers_;
    return sums;
  }

  const int layers_;
  FilledRuntime filled_;
  Buffer q_, kv_, out_;
  std::vector<uint16_t> host_q_;
  Event begin_, end_;
  double host_seconds_ = 0;  // of the last step
  uint64_t seed_ = 0;
};

// The kernel that brings rows over the link: `fetch` also resolves them. Null: none.
const char* transfer_in(const json& kernels) {
  for (const char* const name : {"fetch", "gather"}) {
    if (kernels.contains(name) && kernels.at(name).get<double>() > 0) return name;
  }
  return nullptr;
}

// Minimum bytes that a layer reads, on the device and over the link.
json floors(const Case& wanted, const json& result, const json& ceilings) {
  const double device_rate = ceilings.at("device_copy_bytes_per_second");
  const double link_rate = ceilings.at("h2d_bytes_per_second");
  const auto tokens = static_cast<double>(wanted.tokens);
  if (wanted.preset == "full") {
    const double us = tokens * kHeads * kRowBytes / device_rate * 1e6;
    return {{"read_us", us}, {"share", us / result.at("layer_us").get<double>()}};
  }
  const SliceFormat format{wanted.slice, 2 * wanted.chunks};
  const double slice_us =
      tokens / kPageTokens * kHeads * static_cast<double>(format.page_bytes()) / device_rate * 1e6;
  json floor = {{"slices_us", slice_us}};
  const json& kernels = result.at("kernels_us");
  if (kernels.contains("select")) {
    floor["select_over_slices"] = kernels.at("select").get<double>() / slice_us;
  }
  if (const char* const transfer = transfer_in(kernels); transfer != nullptr) {
    const double bytes = result.at("fetched_rows_per_layer").get<double>() * kRowBytes;
    const double rate = bytes / kernels.at(transfer).get<double>() * 1e6;
    floor["transfer_bytes_per_second"] = rate;
    floor["transfer_share_of_h2d"] = rate / link_rate;
  }
  return floor;
}

// Minimum microseconds of each kernel of a layer: the bytes that it must move, divided by the
// ceiling of the memory or link it uses.
json kernel_floors(const Case& wanted, const json& result, const json& ceilings) {
  const double device_rate = ceilings.at("device_copy_bytes_per_second").get<double>() / 1e6;
  const double link_rate = ceilings.at("h2d_bytes_per_second").get<double>() / 1e6;
  const auto tokens = static_cast<double>(wanted.tokens);
  constexpr double kRowsOfToken = double{kHeads} * kRowBytes;
  if (wanted.preset == "full") return {{"attend", tokens * kRowsOfToken / device_rate}};
  const SliceFormat format{wanted.slice, 2 * wanted.chunks};
  const double slice_bytes =
      tokens / kPageTokens * kHeads * static_cast<double>(format.page_bytes());
  // A low-bit token's value is read as codes of the slice's dtype.
  const auto low_bit_tokens = static_cast<double>(
      wanted.low_bit == Case::kAllOthers ? wanted.tokens : int64_t{wanted.low_bit});
  const double low_bit_bytes = low_bit_tokens * kHeads * kWidth * slice_bits(wanted.slice) / 8.0;
  json floors = {{"select", slice_bytes / device_rate},
                 {"attend", (wanted.budget * kRowsOfToken + low_bit_bytes) / device_rate}};
  if (const char* const transfer = transfer_in(result.at("kernels_us")); transfer != nullptr) {
    floors[transfer] = result.at("fetched_rows_per_layer").get<double>() * kRowBytes / link_rate;
  }
  return floors;
}

// For each context the default, then 320 rows with 1024 low-bit tokens, then full attention; the
// first budget for all contexts before the next.
std::vector<Case> cases_of(const Options& options) {
  constexpr std::pair<SliceDType, int> kSlices[] = {
      {SliceDType::kInt2, 64}, {SliceDType::kInt2, 32}, {SliceDType::kBF16, 16}};
  std::vector<Case> cases;
  for (const int budget : options.budgets) {
    for (const int64_t tokens : options.tokens) {
      if (budget == options.budgets.front()) {
        for (const char* preset : {"fasa-c", "fasa-m"}) {
          for (const int low_bit : {Case::kAllOthers, 1024}) {
            cases.push_back(
                {.preset = preset, .tokens = tokens, .budget = 320, .low_bit = low_bit});
          }
        }
        cases.push_back({.preset = "full", .tokens = tokens});
      }
      for (const auto& [slice, chunks] : kSlices) {
        for (const char* preset : {"fasa-c", "fasa-m"}) {
          cases.push_back({preset, slice, chunks, tokens, budget});
        }
      }
    }
  }
  return cases;
}

void run_cases(const Options& options, Results& results) {
  const auto start = std::chrono::steady_clock::now();
  for (const Case& wanted : cases_of(options)) {
    if (!chosen(options.cases, wanted.name()) || results.has(wanted.name())) continue;
    const double elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (elapsed > options.seconds) {
      results.skip(wanted.name(), kNoTime);
      continue;
    }
    try {
      json result = Decode(options, wanted).run(options.steps);
      result["floor"] = floors(wanted, result, results.at("ceilings"));
      result["kernel_floors_us"] = kernel_floors(wanted, result, results.at("ceilings"));
      fmt::print("{:32} {:10.1f} us a layer, {:.1f} without graphs, hit rate {:.2f}\n",
                 wanted.name(), result.at("layer_us").get<double>(),
                 result.at("enqueued").at("layer_us").get<double>(),
                 result.at("hit_rate").get<double>());
      results.add(wanted.name(), std::move(result));
    } catch (const BudgetError& error) {
      results.skip(wanted.name(), error.what());
    }
  }
  results.print_skipped();
}

json device_report(Device& device) {
  const DeviceRates& rates = device.traits().rates;
  json report = {{"name", device.name()},
                 {"kernels", rates.kernels.text()},
                 {"link_bandwidth", rates.link_bandwidth}};
  if (const auto* cuda = dynamic_cast<const CudaDevice*>(&device); cuda != nullptr) {
    report["gpu"] = cuda->gpu().name;
    report["compute_capability"] = fmt::format("{}.{}", cuda->gpu().major, cuda->gpu().minor);
    report["memory_bytes"] = cuda->gpu().memory_bytes;
  }
  return report;
}

// Ceilings, then copies, gathers and projections.
void measure_device(const Options& options, Results& results) {
  if (!results.contains("ceilings")) {
    const auto device = open(options);
    const size_t bytes = options.copy_bytes;
    results.set("device", device_report(*device));
    results.set(
        "ceilings",
        {{"device_copy_bytes_per_second", 2 * copy_rate(*device, CopyKind::kDeviceToDevice, bytes)},
         {"h2d_bytes_per_second", copy_rate(*device, CopyKind::kHostToDevice, bytes)},
         {"d2h_bytes_per_second", copy_rate(*device, CopyKind::kDeviceToHost, bytes)}});
    for (const auto& [name, rate] : results.at("ceilings").items()) {
      fmt::print("{:32} {:10.1f} GB/s\n", name, rate.get<double>() / 1e9);
    }
  }
  if (!options.copies) return;
  if (!results.contains("gathered_reads")) {
    results.set("gathered_reads", gathered_reads(*open(options), options.copy_bytes));
  }
  const auto device = open(options);
  auto* const cuda = dynamic_cast<CudaDevice*>(device.get());
  if (cuda == nullptr || results.contains("projections")) return;
  results.set("batched_copies", batched_copies(*cuda));
  results.set("projections",
              packed_projections(
                  *cuda, results.at("ceilings").at("device_copy_bytes_per_second").get<double>()));
  for (const auto& [name, result] : results.at("projections").items()) {
    fmt::print("{:32} {:10.1f} us, {:.2f} of the bytes' rate\n", "packed/" + name,
               result.at("us").get<double>(), result.at("share").get<double>());
  }
}

void run(const Options& options) {
  if (options.probe) {
    const auto device = open(options);
    const json report = device_report(*device);
    fmt::print("link {:.1f} GB/s; {}\n{}\n", report.at("link_bandwidth").get<double>() / 1e9,
               report.at("kernels").get<std::string>(),
               report.value("gpu", report.at("name").get<std::string>()));
    return;
  }
  // Before any memory is mapped.
  if (options.small_pages) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  Results results(options.json_file);
  for (const std::string& note : options.notes) {
    const size_t at = note.find('=');
    results.set("notes",
                {{note.substr(0, at), at == std::string::npos ? "" : note.substr(at + 1)}});
  }
  measure_device(options, results);
  run_cases(options, results);
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  fasa::bench::Options options;
  CLI::App app("What a GPU does with the pipeline");
  app.add_option("--device", options.device, "cuda:N, or another device to try the program");
  app.add_flag("--probe", options.probe,
               "opens the device, prints what it measured, then its name, and ends");
  app.add_option("--seconds", options.seconds, "no case begins after that time");
  app.add_option("--json", options.json_file, "file of the results; its cases are not repeated");
  app.add_option("--note", options.notes, "name=value for the results, any number");
  app.add_option("--tokens", options.tokens, "contexts");
  app.add_option("--budgets", options.budgets, "tokens that a step attends to");
  app.add_option("--cases", options.cases, "only cases whose names contain one of these");
  app.add_option("--host-memory", options.host_memory, "limit, bytes; default: what is free");
  app.add_option("--head-groups", options.head_groups, "default: from the device's rates");
  app.add_flag("--kernel-times,!--no-kernel-times", options.kernel_times,
               "runs small kernels when the device is opened, for its rates");
  app.add_flag("--graphs,!--no-graphs", options.graphs, "graphs of decode steps");
  app.add_flag("--copies,!--no-copies", options.copies,
               "measures copies, gathers and projections too");
  app.add_flag("--small-pages", options.small_pages, "no transparent huge pages");
  app.add_option("--layers", options.layers, "layers of a step");
  app.add_option("--steps", options.steps, "timed steps");
  app.add_option("--copy-bytes", options.copy_bytes,
                 "bytes of the copies that measure the ceilings");
  CLI11_PARSE(app, argc, argv);
  try {
    fasa::bench::run(options);
  } catch (const fasa::Error& error) {
    std::cerr << "gpu_bench: " << error.what() << "\n";
    return static_cast<int>(error.kind());
  }
  return 0;
}
