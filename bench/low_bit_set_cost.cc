// Cost of low-bit sets on this CPU: the attention of a layer with several pairs of fac_tokens and
// low_bit_tokens, in turns, so that other load on the machine affects all of them equally.
//
//   low_bit_set_cost [--tokens N] [--rounds N] [--threads N] [--codes int2] [256 320 320+all]
//
// 8 KV x 4 query heads, head_dim 128, bf16 rows, batch 1; the same keys and queries for all pairs.
// Between two visits of a layer the others' slices flush the cache. Printed: medians of a layer's
// time and of the processor time of its threads, and of their ratios to the first pair's within the
// same round, with quartiles.
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/stream.h"
#include "offload/open_device.h"
#include "tests/support/filled_runtime.h"

namespace fasa::bench {
namespace {

constexpr int kHeads = 8;
constexpr int kLayers = 2;

struct Setting {
  int fac_tokens;
  TokenCount low_bit_tokens;
};

Setting setting_of(const std::string& text) {
  const size_t plus = text.find('+');
  if (plus == std::string::npos) return {std::stoi(text), {}};
  const std::string low_bit = text.substr(plus + 1);
  if (low_bit == "all") return {std::stoi(text), {.tokens = 0, .share = 1}};
  return {std::stoi(text), {.tokens = std::stoi(low_bit), .share = 0}};
}

struct Cost {
  double seconds = 0;
  double processor_seconds = 0;
};

double processor_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Case {
 public:
  Case(const std::shared_ptr<Device>& device, Setting setting, SliceDType codes, int64_t tokens)
      : filled_(device, config(setting, codes), llama_8b(kLayers),
                first_chunk_dims(llama_8b(kLayers), 64), tokens),
        out_(4096) {}

  void begin() {
    const StepSequence part{filled_.sequence(), 1, StepMode::kDecode};
    filled_.runtime().begin_step({&part, 1});
  }
  Cost attend(int layer, const uint16_t* q, const uint16_t* kv) {
    Runtime& runtime = filled_.runtime();
    const auto row = ConstTensorView::dense(kv, DType::kBF16, 1, kHeads, 128);
    runtime.append(layer, row, row, filled_.stream());
    const double used = processor_seconds();
    const auto since = std::chrono::steady_clock::now();
    runtime.attend(layer, ConstTensorView::dense(q, DType::kBF16, 1, 32, 128),
                   TensorView::dense(out_.data(), DType::kF32, 1, 32, 128), nullptr,
                   filled_.stream());
    return {seconds_since(since), processor_seconds() - used};
  }
  void end() { filled_.runtime().end_step(); }

 private:
  static Config config(Setting setting, SliceDType codes) {
    Config config;
    config.selection.fac_tokens = {{.tokens = setting.fac_tokens, .share = 0}};
    config.selection.low_bit_tokens = setting.low_bit_tokens;
    config.selection.slice_dtype = config.selection.value_codes = codes;
    return config;
  }

  FilledRuntime filled_;
  std::vector<float> out_;
};

// One device for all cases, because devices lend threads to each other: in a process that used
// three devices in turn, the second thread came 65 us late (median); with one or two devices, 1 us.
std::shared_ptr<Device> cpu(int threads) {
  DeviceOptions options;
  options.name = "cpu";
  options.threads = threads;
  return open_device(options);
}

double quantile(std::vector<double> values, double share) {
  const auto at = static_cast<int64_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

using Round = std::vector<Cost>;  // by case

// A step of every case, alternating layer by layer; each round starts with another case.
Round round_of(std::span<const std::unique_ptr<Case>> cases, size_t round) {
  const std::vector<uint16_t> q = random_bf16(4096, 2 * round + 11);
  const std::vector<uint16_t> kv = random_bf16(1024, 2 * round + 12);
  Round costs(cases.size());
  for (const auto& subject : cases) subject->begin();
  for (int layer = 0; layer < kLayers; ++layer) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const size_t turn = (i + round) % cases.size();
      const Cost cost = cases[turn]->attend(layer, q.data(), kv.data());
      costs[turn].seconds += cost.seconds / kLayers;
      costs[turn].processor_seconds += cost.processor_seconds / kLayers;
    }
  }
  for (const auto& subject : cases) subject->end();
  return costs;
}

// "median ratio (quartiles)" of one time of a case.
std::string summary(const std::vector<Round>& rounds, size_t i, double Cost::*time) {
  std::vector<double> seconds, ratios;
  for (const Round& costs : rounds) {
    seconds.push_back(costs[i].*time);
    ratios.push_back(costs[i].*time / (costs[0].*time));
  }
  return fmt::format("{:.3f} ms  {:.3f} ({:.3f} to {:.3f})", quantile(seconds, 0.5) * 1e3,
                     quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75));
}

void run(const std::vector<std::string>& names, SliceDType codes, int64_t tokens, int rounds,
         int threads) {
  const std::shared_ptr<Device> device = cpu(threads);
  std::vector<std::unique_ptr<Case>> cases;
  for (const std::string& name : names) {
    cases.push_back(std::make_unique<Case>(device, setting_of(name), codes, tokens));
  }
  constexpr size_t kWarmUp = 3;
  std::vector<Round> measured;
  for (size_t round = 0; round < kWarmUp + static_cast<size_t>(rounds); ++round) {
    const Round costs = round_of(cases, round);
    if (round >= kWarmUp) measured.push_back(costs);
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    fmt::print("{:>9}   {}   processor {}\n", names[i], summary(measured, i, &Cost::seconds),
               summary(measured, i, &Cost::processor_seconds));
  }
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  CLI::App app("What low-bit sets cost on this CPU");
  std::vector<std::string> pairs = {"256", "320", "320+1024", "320+all"};
  std::string codes = "int2";
  int64_t tokens = 131072;
  int rounds = 100;
  int threads = 0;
  app.add_option("pairs", pairs,
                 "fac_tokens+low_bit_tokens; the first is what others are compared to");
  app.add_option("--codes", codes, "Of slices and values: int2, int4 or int8");
  app.add_option("--tokens", tokens);
  app.add_option("--rounds", rounds);
  app.add_option("--threads", threads);
  CLI11_PARSE(app, argc, argv);
  const auto dtype = fasa::parse_slice_dtype(codes);
  if (!dtype || !fasa::is_coded(*dtype)) return app.exit(CLI::ValidationError("--codes", codes));
  fasa::bench::run(pairs, *dtype, tokens, rounds, threads);
  return 0;
}
