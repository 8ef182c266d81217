// A model of random weights on a GPU at a long context: time to the first token, then time per
// token for every preset, with graphs and without, without prefetch, with fewer hot rows and with
// 4-bit weights; and the trace of a few decode steps.
//
//   gpu_model --geometry Llama-3.1-8B --tokens 131000 --seconds 500 --json FILE [--trace FILE]
//
// One process loads the weights once for each format. Only the first case runs a prompt; the others
// start from random keys and values. A case that FILE already has is not repeated, so a run that
// was cut off continues. Times are the host's, from the token's id to its logits and the next id.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/gpu_results.h"
#include "runtime/base/error.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/fasa.hpp"
#include "runtime/io/output_file.h"
#include "runtime/llm/compute/model_slices.h"
#include "runtime/llm/compute/open_model_device.h"
#include "runtime/llm/config/model_shape.h"
#include "runtime/llm/generation/open_prompt.h"
#include "runtime/llm/generation/random_context.h"
#include "runtime/llm/generation/sampler.h"
#include "runtime/profile/kernel_bytes.h"
#include "runtime/profile/profile.h"
#include "runtime/profile/verdict.h"
#include "runtime/trace/trace_file.h"

namespace fasa::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 24;  // steps that capture graphs and try prefetch depths
constexpr int kTracedSteps = 4;
constexpr int kFewSets = 4;  // of hot rows, for the case with few

struct Options {
  std::string geometry = "Llama-3.1-8B";
  std::string device = "cuda:0";
  int layers = 0;  // 0: the geometry's
  int64_t tokens = 131000;
  int piece = kPieceTokens;
  int steps = 128;
  double seconds = 500;
  std::optional<uint64_t> device_memory, host_memory;
  bool kernel_times = true;
  std::string json_file;
  std::string trace_file;
  std::vector<std::string> cases;
};

struct Case {
  const char* name;
  const char* preset;
  WeightRounding weights = WeightRounding::kAsIs;
  bool prompt = false;  // runs a prompt
  bool prefetch = true;
  bool few_hot_rows = false;
};

// By worth; cases with the same weights are neighbours.
constexpr Case kCases[] = {
    {"bf16/fasa-m", "fasa-m", WeightRounding::kAsIs, true},
    {"bf16/fasa-c", "fasa-c"},
    {"bf16/full", "full"},
    {"bf16/fasa-m/no-prefetch", "fasa-m", WeightRounding::kAsIs, false, false},
    {"bf16/fasa-m/4-sets", "fasa-m", WeightRounding::kAsIs, false, true, true},
    {"int4/fasa-m", "fasa-m", WeightRounding::kInt4},
    {"int4/fasa-c", "fasa-c", WeightRounding::kInt4},
    {"int4/full", "full", WeightRounding::kInt4},
};

class OutOfTime {};

class Deadline {
 public:
  explicit Deadline(double seconds) : end_(Clock::now() + std::chrono::duration<double>(seconds)) {}
  void check() const {
    if (Clock::now() > end_) throw OutOfTime();
  }

 private:
  std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Config config_of(const Options& options, const Case& wanted) {
  Config config;
  config.preset = wanted.preset;
  const bool full = config.preset == "full";
  config.selection.kind = full ? SelectionKind::kFull : SelectionKind::kFasa;
  config.placement.rows = config.preset == "fasa-m" ? RowPlacement::kHost : RowPlacement::kDevice;
  config.device.name = options.device;
  config.device.kernel_times = options.kernel_times;
  config.memory.device_memory = options.device_memory;
  config.memory.host_memory = options.host_memory;
  config.weights.rounding = wanted.weights;
  if (!wanted.prefetch) config.prefetch.depth = 0;
  if (wanted.few_hot_rows) {
    config.placement.hot_rows = static_cast<int>(kFewSets * kDefaultFacTokens.max_tokens);
  }
  return config;
}

// One sequence with a long context.
class Decode {
 public:
  Decode(const Options& options, const Case& wanted, Model& model, const Deadline& deadline)
      : model_(model),
        device_(model.device()),
        deadline_(deadline),
        runtime_(device_, config_of(options, wanted), model.config().geometry(),
                 model.config().row_dtype(), dims_of(options, wanted, model),
                 options.tokens + room(options)),
        sequence_(runtime_.create()) {
    model_.reserve(wanted.prompt ? options.piece + OpenPrompt::kFewRows : 1);
    runtime_.set_rollback_tokens(sequence_, 0);
    runtime_.reserve(sequence_, options.tokens + room(options),
                     wanted.prompt ? options.piece : kRandomChunk);
  }

  // Layer by layer, or by steps of a piece where that cannot be. Returns what it took.
  json prefill(int64_t tokens, int piece) {
    std::vector<int32_t> prompt(static_cast<size_t>(tokens));
    for (int32_t& id : prompt) id = next_id();
    const auto begin = Clock::now();
    std::optional<OpenPrompt> open =
        OpenPrompt::open(model_, runtime_, sequence_, prompt, {.piece = piece});
    const int chunk = open ? open->chunk() : piece;
    if (open) {
      while (!open->work()) deadline_.check();
    } else {
      read_by_steps(prompt, piece);
    }
    return {{"ttft_s", seconds_since(begin)}, {"piece_tokens", piece}, {"chunk_tokens", chunk}};
  }
  void fill(int64_t tokens) { append_random_context(model_, runtime_, sequence_, tokens); }

  json times(int steps, bool graphs) {
    for (int i = 0; i < kWarmUp; ++i) step(graphs);
    runtime_.reset_metrics();
    const uint64_t launched = runtime_.graph_metrics().launched;
    std::vector<double> ms;
    for (int i = 0; i < steps; ++i) ms.push_back(step(graphs) * 1e3);
    const FetchMetrics metrics = runtime_.metrics();
    return {{"tpot_ms", median(ms)},
            {"tpot_ms_min", *std::min_element(ms.begin(), ms.end())},
            {"graph_steps", runtime_.graph_metrics().launched - launched},
            {"hit_rate", metrics.hit_rate()},
            {"miss_bytes_per_token", static_cast<double>(metrics.bytes.miss) / steps},
            {"prefetch_bytes_per_token", static_cast<double>(metrics.bytes.prefetch) / steps},
            {"prefetch_accuracy", metrics.prefetch_accuracy()}};
  }

  // Steps with a timeline, written to `file`; returns where their time goes.
  json trace(const std::string& file) {
    Timeline timeline;
    Profile profile(model_.config().layers);
    device_.set_timeline(&timeline);
    for (int i = 0; i < kTracedSteps; ++i) {
      const size_t first = timeline.size();
      runtime_.reset_metrics();
      ProfiledStep traced{.seconds = step(false), .entries = {}, .fetch = {}, .overlap = {}};
      traced.fetch = runtime_.metrics();  // waits for all streams
      traced.entries = timeline.entries(first);
      if (!device_.traits().times_kernel_bytes) add_kernel_bytes(traced.fetch, traced.entries);
      profile.add(traced);
    }
    device_.set_timeline(nullptr);
    write_file_atomically(file, trace_json(timeline, {device_.name(), device_.virtual_clock()}));
    return summary(profile);
  }

 private:
  void read_by_steps(std::span<const int32_t> prompt, int tokens) {
    while (!prompt.empty()) {
      deadline_.check();
      const auto ids = prompt.first(std::min(static_cast<size_t>(tokens), prompt.size()));
      prompt = prompt.subspan(ids.size());
      const StepSequence step[] = {{sequence_, static_cast<int>(ids.size()), StepMode::kPrefill}};
      model_.step(runtime_, ids, step, {.no_logits = !prompt.empty()});
    }
  }

  static int64_t room(const Options& options) {
    return 2 * int64_t{kWarmUp + options.steps} + kTracedSteps + 1;
  }
  static std::vector<int16_t> dims_of(const Options& options, const Case& wanted, Model& model) {
    const auto slices = model_slices(model, config_of(options, wanted), "");
    return slices ? slices->dims : std::vector<int16_t>();
  }
  json summary(const Profile& profile) const {
    constexpr double kSteps = kTracedSteps;
    const LayerProfile total = profile.total();
    json waits = json::object();
    for (size_t i = 0; i < kWaitReasons; ++i) {
      waits[wait_reason_name(static_cast<WaitReason>(i))] = total.waits[i] / kSteps * 1e3;
    }
    json parts = json::object();
    for (const auto& [name, part] : profile.parts()) parts[name] = part.seconds / kSteps * 1e3;
    return {{"verdict", verdict(profile, device_.traits().rates.kernels)},
            {"step_ms", profile.seconds() / kSteps * 1e3},
            {"transfer_ms", profile.total_transfer() / kSteps * 1e3},
            {"hidden_share", profile.total_hidden()},
            {"waits_ms", waits},
            {"parts_ms", parts},
            {"idle_ms", profile.idle() / kSteps * 1e3},
            {"hit_rate", total.rows.hit_rate()},
            {"miss_bytes", static_cast<double>(total.miss.bytes) / kSteps},
            {"prefetch_bytes", static_cast<double>(total.prefetch.bytes) / kSteps},
            {"link_bytes_per_second",
             profile.link().seconds_per_byte > 0 ? 1 / profile.link().seconds_per_byte : 0.0}};
  }

  int32_t next_id() { return static_cast<int32_t>(ids_++ * 7919 % model_.config().vocab_size); }
  // Seconds of one decode step.
  double step(bool graphs) {
    deadline_.check();
    const StepSequence one[] = {{sequence_, 1, StepMode::kDecode}};
    const auto begin = Clock::now();
    token_ = sampler_.next(model_.step(runtime_, {&token_, 1}, one, {.graphs = graphs}));
    return seconds_since(begin);
  }

  Model& model_;
  Device& device_;
  const Deadline& deadline_;
  Runtime runtime_;
  const SequenceId sequence_;
  Sampler sampler_{{}};
  int32_t token_ = 1;
  int64_t ids_ = 1;
};

// Operations of a prompt: all layers' matrices, and the scores and values of causal attention.
json flops(const ModelShape& shape, int64_t tokens, double seconds) {
  const Geometry& g = shape.geometry;
  const auto n = static_cast<double>(tokens);
  const double matrices = 2.0 * static_cast<double>(shape.layer_parameters()) * g.layers * n;
  const double attention =
      static_cast<double>(g.query_heads * (g.key_dim + g.value_dim)) * g.layers * n * n;
  return {{"matrices", matrices},
          {"attention", attention},
          {"per_second", (matrices + attention) / seconds}};
}

json measure(const Options& options, const Case& wanted, const ModelShape& shape, Model& model,
             const Deadline& deadline) {
  const auto begin = Clock::now();
  Decode decode(options, wanted, model, deadline);
  json result;
  result["reserve_s"] = seconds_since(begin);
  const auto filled = Clock::now();
  if (wanted.prompt) {
    result["prompt"] = decode.prefill(options.tokens, options.piece);
    result["prompt"]["flop"] =
        flops(shape, options.tokens, result["prompt"].at("ttft_s").get<double>());
  } else {
    decode.fill(options.tokens);
    result["fill_s"] = seconds_since(filled);
  }
  result["graphs"] = decode.times(options.steps, true);
  result["enqueued"] = decode.times(options.steps, false);
  if (wanted.prompt && !options.trace_file.empty()) {
    result["trace"] = decode.trace(options.trace_file);
  }
  return result;
}

class Run {
 public:
  explicit Run(const Options& options)
      : options_(options), deadline_(options.seconds), results_(options.json_file) {
    shape_ = find_model_shape(options.geometry);
    if (options.layers > 0) shape_.geometry.layers = options.layers;
    model_config_ = llama_config(shape_);
  }

  void run() {
    for (const Case& wanted : kCases) {
      if (!chosen(options_.cases, wanted.name)) continue;
      if (results_.has(wanted.name)) continue;
      try {
        deadline_.check();
        results_.add(wanted.name, measure(options_, wanted, shape_, model_of(wanted), deadline_));
        print(wanted.name, results_.of(wanted.name));
      } catch (const OutOfTime&) {
        results_.skip(wanted.name, kNoTime);
      } catch (const BudgetError& error) {
        results_.skip(wanted.name, error.what());
      }
    }
    results_.print_skipped();
  }

 private:
  Model& model_of(const Case& wanted) {
    if (model_ && weights_ == wanted.weights) return *model_;
    model_.reset();
    if (!device_) {
      device_ = open_model_device(config_of(options_, wanted).device_options(), model_config_);
      results_.set("device", device_->name());
      results_.set("geometry", options_.geometry);
      results_.set("tokens", options_.tokens);
    }
    const auto begin = Clock::now();
    constexpr uint64_t kSeed = 1;
    model_ = Model::random(model_config_, *device_, DType::kBF16, kSeed,
                           config_of(options_, wanted).weights);
    weights_ = wanted.weights;
    fmt::print("weights: {:.1f} s, {} bytes\n", seconds_since(begin), model_->weight_bytes().total);
    return *model_;
  }

  static void print(const char* name, const json& result) {
    const std::string first = result.contains("prompt")
                                  ? fmt::format(", first token after {:.1f} s",
                                                result.at("prompt").at("ttft_s").get<double>())
                                  : "";
    fmt::print("{:28} {:8.2f} ms a token, {:.2f} without graphs, hit rate {:.2f}{}\n", name,
               result.at("graphs").at("tpot_ms").get<double>(),
               result.at("enqueued").at("tpot_ms").get<double>(),
               result.at("graphs").at("hit_rate").get<double>(), first);
  }

  const Options& options_;
  const Deadline deadline_;
  Results results_;
  ModelShape shape_;
  ModelConfig model_config_;
  std::unique_ptr<Device> device_;
  std::optional<Model> model_;
  WeightRounding weights_ = WeightRounding::kAsIs;
};

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  fasa::bench::Options options;
  CLI::App app("Times of a model with random weights at a long context");
  app.add_option("--geometry", options.geometry, "as in `fasa plan --list`");
  app.add_option("--device", options.device, "cuda:N, or another device to try the program");
  app.add_option("--layers", options.layers, "fewer layers, to try the program");
  app.add_option("--tokens", options.tokens, "of the context");
  app.add_option("--piece", options.piece, "tokens of the prompt that a layer takes at a time");
  app.add_option("--steps", options.steps, "timed decode steps of each kind");
  app.add_option("--seconds", options.seconds, "nothing begins after that time");
  app.add_option("--device-memory", options.device_memory, "limit, bytes");
  app.add_option("--host-memory", options.host_memory, "limit, bytes; default: what is free");
  app.add_flag("--kernel-times,!--no-kernel-times", options.kernel_times,
               "runs small kernels when the device is opened, for its rates");
  app.add_option("--cases", options.cases, "only cases whose names contain one of these");
  app.add_option("--json", options.json_file, "file of the results; its cases are not repeated");
  app.add_option("--trace", options.trace_file, "trace of four decode steps of the first case");
  CLI11_PARSE(app, argc, argv);
  try {
    fasa::bench::Run(options).run();
  } catch (const fasa::Error& error) {
    fmt::print(stderr, "gpu_model: {}\n", error.what());
    return static_cast<int>(error.kind());
  }
  return 0;
}
