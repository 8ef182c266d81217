// Milliseconds of a model's steps by content, and of processor time of all threads: decode steps of
// several sequences, and chunks of a prompt. The fixed cost of a chunk is the cost of small chunks
// in continuous batching.
//
//   step_times MODEL [--context N] [--sequences N...] [--chunks N...] [--repeat N]
//              [--dtype f32|bf16] [--json] [flags of [weights], --threads]
//
// Every sequence holds --context tokens before the first step. Sizes take turns; medians of
// --repeat.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/config_flags.h"
#include "runtime/fasa.hpp"
#include "runtime/llm/compute/open_model.h"
#include "runtime/llm/generation/owned_sequence.h"

namespace fasa::bench {
namespace {

struct Options {
  std::string model;
  std::string dtype;
  int context = 512;
  std::vector<int> sequences = {1, 2, 3, 4, 8, 16};
  std::vector<int> chunks = {1, 8, 16, 32, 64, 128, 256, 512};
  int repeat = 9;
  bool json = false;
  Config config;
};

struct Cost {
  double ms, cpu_ms;
};

// Sequences of a model that share their first `context` tokens and then continue separately.
class Steps {
 public:
  Steps(Model& model, Runtime& runtime, int context, int sequences)
      : model_(model), runtime_(runtime), context_(context) {
    sequences_.emplace_back(runtime_);
    const StepSequence whole[] = {{sequences_.front().id(), context, StepMode::kPrefill}};
    model_.step(runtime_, tokens(context), whole, {.no_logits = true});
    for (int i = 1; i < sequences; ++i) {
      sequences_.emplace_back(runtime_, runtime_.fork(sequences_.front().id(), context));
    }
    decode(sequences);  // allocates their own pages
  }

  Cost decode(int sequences) {
    std::vector<StepSequence> parts;
    for (const OwnedSequence& sequence : sequences_) {
      if (std::ssize(parts) < sequences) parts.push_back({sequence.id(), 1, StepMode::kDecode});
    }
    return time(parts, sequences);
  }
  // Prefills a chunk and removes it again.
  Cost prefill(int chunk) {
    const OwnedSequence fork(runtime_, runtime_.fork(sequences_.front().id(), context_));
    const StepSequence part[] = {{fork.id(), chunk, StepMode::kPrefill}};
    return time(part, chunk);
  }

 private:
  Cost time(std::span<const StepSequence> parts, int count) {
    const std::vector<int32_t> ids = tokens(count);
    const auto begin = std::chrono::steady_clock::now();
    const std::clock_t cpu = std::clock();
    model_.step(runtime_, ids, parts);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    return {took.count(), 1e3 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC};
  }
  std::vector<int32_t> tokens(int count) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (int32_t& id : ids) id = static_cast<int32_t>(next_++ * 7919 % model_.config().vocab_size);
    return ids;
  }

  Model& model_;
  Runtime& runtime_;
  int context_;
  int64_t next_ = 1;
  std::list<OwnedSequence> sequences_;  // which do not move
};

struct Case {
  StepMode mode;
  int size;  // sequences of a decode step, tokens of a chunk
  std::vector<Cost> costs = {};

  double median(double Cost::*part) const {
    std::vector<double> values;
    for (const Cost& cost : costs) values.push_back(cost.*part);
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }
};

void print_table(const char* title, const std::vector<Case>& cases, StepMode mode) {
  fmt::print("{:>12} | {:>8} | {:>10} | {:>12}\n", title, "ms", "ms a token", "processor ms");
  for (const Case& one : cases) {
    if (one.mode != mode) continue;
    const double ms = one.median(&Cost::ms);
    fmt::print("{:>12} | {:8.2f} | {:10.3f} | {:12.2f}\n", one.size, ms, ms / one.size,
               one.median(&Cost::cpu_ms));
  }
}

int run(const Options& options) {
  std::optional<DType> dtype;
  if (!options.dtype.empty()) dtype = parse_dtype(options.dtype);
  OpenModel opened = open_model(options.model, options.config, dtype);
  const auto runtime = opened.make_runtime();
  const int most = *std::max_element(options.sequences.begin(), options.sequences.end());
  Steps steps(opened.model, *runtime, options.context, most);
  std::vector<Case> cases;
  for (const int size : options.sequences) cases.push_back({StepMode::kDecode, size});
  for (const int size : options.chunks) cases.push_back({StepMode::kPrefill, size});
  for (int round = -1; round < options.repeat; ++round) {  // the first warms up
    for (Case& one : cases) {
      const bool decode = one.mode == StepMode::kDecode;
      const Cost cost = decode ? steps.decode(one.size) : steps.prefill(one.size);
      if (round >= 0) one.costs.push_back(cost);
    }
  }
  if (options.json) {
    nlohmann::json json = {{"context", options.context}};
    for (const Case& one : cases) {
      const std::string kind = one.mode == StepMode::kDecode ? "decode" : "prefill";
      const std::string size = std::to_string(one.size);
      json[kind + "_ms"][size] = one.median(&Cost::ms);
      json[kind + "_cpu_ms"][size] = one.median(&Cost::cpu_ms);
    }
    fmt::print("{}\n", json.dump(1));
    return 0;
  }
  print_table("sequences", cases, StepMode::kDecode);
  print_table("chunk", cases, StepMode::kPrefill);
  return 0;
}

int main_checked(int argc, char** argv) {
  CLI::App app;
  Options options;
  app.add_option("MODEL", options.model)->required();
  app.add_option("--context", options.context)->check(CLI::Range(1, 1 << 20));
  app.add_option("--sequences", options.sequences)->check(CLI::Range(1, 256));
  app.add_option("--chunks", options.chunks)->check(CLI::Range(1, 65536));
  app.add_option("--repeat", options.repeat)->check(CLI::Range(1, 10000));
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_flag("--json", options.json);
  const ConfigFlags flags(app);
  CLI11_PARSE(app, argc, argv);
  options.config = flags.config();
  return run(options);
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  return fasa::bench::run_program("step_times", fasa::bench::main_checked, argc, argv);
}
