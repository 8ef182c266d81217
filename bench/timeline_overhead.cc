// Cost of the timeline: time per decode step (TPOT) of attention on the cpu device without any
// timeline code, with the timeline off, and with it on.
//
//   timeline_overhead [--tokens N] [--layers N] [--turns N] [--k N] [--threads N]
//
// With one thread, the default, its processor time is measured, so that other processes do not
// count; with more threads, wall time.
//
// "none": the same runtime on the same memory, whose kernels, copies and tags go through launchers
// without a timeline. The three kinds take turns in random order, with a step to warm up after each
// turn. Compared are the fastest tenths (10th percentiles), since other load on the machine only
// adds time, with the 95 % interval of their ratio (bootstrap). Then follows the cost of one
// operation (an empty kernel and its tag) times the operations of a step: the expected ratios, for
// machines too noisy to show them.
#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <vector>

#include "kernels/run_on_host.h"
#include "offload/host/thread_count.h"
#include "offload/open_device.h"
#include "offload/timeline/timeline.h"
#include "offload/wrapped_device.h"
#include "tests/support/filled_runtime.h"

namespace fasa::bench {
namespace {

struct Options {
  int64_t tokens = 8192;
  int layers = 8;
  int turns = 400;
  int64_t k = 256;
  int threads = 1;
};

double now_seconds(const Options& options) {
  timespec time{};
  clock_gettime(options.threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

enum Kind : size_t { kNone, kOff, kOn, kKinds };
constexpr const char* kNames[kKinds] = {"none", "off", "on"};

std::unique_ptr<tbb::task_arena> bare_arena;

// The cpu device, with or without its timeline code.
class SwitchedDevice final : public WrappedDevice {
 public:
  explicit SwitchedDevice(std::unique_ptr<Device> cpu)
      : WrappedDevice(*cpu), cpu_(std::move(cpu)) {}

  void take(Kind kind) {
    bare_ = kind == kNone;
    cpu_->set_timeline(kind == kOn ? &timeline_ : nullptr);
  }
  Timeline& recorded() { return timeline_; }

 private:
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override {
    if (!bare_) return WrappedDevice::do_enqueue(call, stream, tag);
    bare_arena->execute([&] { run_on_host(call); });
  }
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override {
    if (!bare_) return WrappedDevice::do_copy(ranges, kind, stream, tag);
    for (const CopyRange& range : ranges) {
      std::memcpy(range.destination, range.source, range.bytes);
    }
  }

  std::unique_ptr<Device> cpu_;
  Timeline timeline_;
  bool bare_ = false;
};

class Subject {
 public:
  explicit Subject(const Options& options) : Subject(options, make_device(options)) {}

  void take(Kind kind) {
    device_.take(kind);
    device_.recorded().clear();
  }
  size_t recorded() { return device_.recorded().size(); }

  double step_seconds() {
    Runtime& runtime = filled_.runtime();
    const StreamView stream = filled_.stream();
    const StepSequence part{filled_.sequence(), 1, StepMode::kDecode};
    const auto kv = ConstTensorView::dense(kv_.data(), DType::kBF16, 1, 8, 128);
    const double begin = now_seconds(options_);
    runtime.begin_step({&part, 1});
    for (int layer = 0; layer < options_.layers; ++layer) {
      runtime.append(layer, kv, kv, stream);
      runtime.attend(layer, ConstTensorView::dense(q_.data(), DType::kBF16, 1, 32, 128),
                     TensorView::dense(out_.data(), DType::kF32, 1, 32, 128), nullptr, stream);
    }
    runtime.end_step();
    const double seconds = now_seconds(options_) - begin;
    if (++steps_ % FilledRuntime::kRoom == 0) {  // as long as at the beginning
      runtime.truncate(filled_.sequence(), options_.tokens);
    }
    return seconds;
  }

  double operation_seconds() {
    constexpr int kCount = 1000;
    const AppendParams empty{};  // no sequences
    const double begin = now_seconds(options_);
    for (int i = 0; i < kCount; ++i) {
      device_.enqueue(empty, filled_.stream());
    }
    return (now_seconds(options_) - begin) / kCount;
  }

 private:
  static std::unique_ptr<SwitchedDevice> make_device(const Options& options) {
    DeviceOptions device;
    device.name = "cpu";
    device.threads = options.threads;
    return std::make_unique<SwitchedDevice>(open_device(device));
  }
  static Config config(const Options& options) {
    Config config;
    config.selection.fac_tokens = {{.tokens = options.k, .share = 0}};
    config.selection.low_bit_tokens = TokenCount{};
    return config;
  }
  Subject(const Options& options, std::unique_ptr<SwitchedDevice> device)
      : options_(options),
        device_(*device),
        filled_(std::move(device), config(options), llama_8b(options.layers),
                first_chunk_dims(llama_8b(options.layers), 64), options.tokens),
        q_(random_bf16(4096, 11)),
        kv_(random_bf16(1024, 12)),
        out_(4096) {}

  const Options options_;
  SwitchedDevice& device_;  // filled_ owns it
  FilledRuntime filled_;
  std::vector<uint16_t> q_;
  std::vector<uint16_t> kv_;
  std::vector<float> out_;
  int steps_ = 0;
};

using Samples = std::array<std::vector<double>, kKinds>;

template <typename Measure>
Samples measure(Subject& subject, int turns, Measure measure_one) {
  Samples samples;
  std::mt19937 random(5);
  std::array<Kind, kKinds> kinds{kNone, kOff, kOn};
  for (int turn = 0; turn < turns; ++turn) {
    std::shuffle(kinds.begin(), kinds.end(), random);
    for (const Kind kind : kinds) {
      subject.take(kind);
      measure_one();  // warms up
      samples[kind].push_back(measure_one());
    }
  }
  return samples;
}

double quantile(std::vector<double> values, double share) {
  const auto at = static_cast<int64_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

double fast(const std::vector<double>& values) { return quantile(values, 0.1); }

// The 95 % interval of the ratio of fastest tenths, less 1, in percent; whole turns are resampled.
std::pair<double, double> interval(const std::vector<double>& some,
                                   const std::vector<double>& base) {
  std::mt19937 random(9);
  std::vector<double> ratios;
  for (int round = 0; round < 1000; ++round) {
    std::vector<double> a, b;
    for (size_t i = 0; i < some.size(); ++i) {
      const size_t at = random() % some.size();
      a.push_back(some[at]);
      b.push_back(base[at]);
    }
    ratios.push_back((fast(a) / fast(b) - 1) * 100);
  }
  std::sort(ratios.begin(), ratios.end());
  return {ratios[25], ratios[974]};
}

void run(const Options& options) {
  bare_arena = std::make_unique<tbb::task_arena>(ThreadCount(options.threads).value());
  Subject subject(options);
  const Samples steps = measure(subject, options.turns, [&] { return subject.step_seconds(); });
  const auto line = [&](Kind kind, Kind base) {
    const auto [low, high] = interval(steps[kind], steps[base]);
    fmt::print("  {} over {}: {:+.2f} % ({:+.2f} to {:+.2f})\n", kNames[kind], kNames[base],
               (fast(steps[kind]) / fast(steps[base]) - 1) * 100, low, high);
  };
  fmt::print("{} tokens, {} layers, k = {}, {} threads, {} turns\n", options.tokens, options.layers,
             options.k, options.threads, options.turns);
  for (const Kind kind : {kNone, kOff, kOn}) {
    fmt::print("  {:<4} {:.3f} ms a step (median {:.3f})\n", kNames[kind], fast(steps[kind]) * 1e3,
               quantile(steps[kind], 0.5) * 1e3);
  }
  line(kOff, kNone);
  line(kOn, kOff);

  subject.take(kOn);
  subject.step_seconds();
  const size_t operations = subject.recorded();
  const Samples costs = measure(subject, 50, [&] { return subject.operation_seconds(); });
  const double step = fast(steps[kNone]);
  const auto cost = [&](Kind kind, Kind base) {
    const double seconds = fast(costs[kind]) - fast(costs[base]);
    fmt::print("  {} over {}: {:.1f} ns an operation, x {} a step = {:.3f} %\n", kNames[kind],
               kNames[base], seconds * 1e9, operations,
               seconds * static_cast<double>(operations) / step * 100);
  };
  fmt::print("an empty kernel: {:.0f} ns without timeline code\n", fast(costs[kNone]) * 1e9);
  cost(kOff, kNone);
  cost(kOn, kOff);
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  fasa::bench::Options options;
  CLI::App app("What the timeline costs on the cpu device");
  app.add_option("--tokens", options.tokens)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--layers", options.layers)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--turns", options.turns)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--k", options.k)->capture_default_str()->check(CLI::Range(32, 1 << 20));
  app.add_option("--threads", options.threads)->capture_default_str()->check(CLI::Range(1, 1024));
  CLI11_PARSE(app, argc, argv);
  fasa::bench::run(options);
  return 0;
}
