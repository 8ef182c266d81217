// Time between a stream's tokens: alone, and while another session is evicted to disk beside it.
//
//   session_eviction --dir DIR [--model DIR] [--device NAME] [--tokens N] [--rounds N]
//
// Each round computes a session of --tokens tokens and starts a stream. It takes the stream's times
// for a second, and then until the evicted session is on disk.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/llm/compute/open_model.h"
#include "runtime/serve/engine_loop.h"
#include "tests/support/source_path.h"

namespace fasa::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kMaxEviction(1);

struct Options {
  std::string model = source_path("models/needle-3m");
  std::string device = "cpu";
  std::string dir;
  int tokens = 32000;
  int rounds = 3;
};

// When each token of a request came.
class TokenTimes final : public serve::RequestObserver {
 public:
  void on_prefill(int64_t, int64_t, int64_t) override {}
  void on_token(int, const Answer&) override {
    const std::lock_guard lock(mutex_);
    times_.push_back(Clock::now());
    changed_.notify_all();
  }
  void on_end(int, const Answer&) override { end(""); }
  void on_error(ErrorKind, const std::string& message) override { end(message); }

  void wait_for_tokens(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return times_.size() >= count || ended_; });
  }
  void wait() { wait_for_tokens(SIZE_MAX); }
  // Milliseconds between two tokens that came since `begin`, in order of size.
  std::vector<double> gaps_since(Clock::time_point begin) const {
    const std::lock_guard lock(mutex_);
    if (ended_) throw InputError("the stream ended " + error_);
    std::vector<double> gaps;
    for (size_t i = 1; i < times_.size(); ++i) {
      if (times_[i - 1] < begin) continue;
      gaps.push_back(std::chrono::duration<double, std::milli>(times_[i] - times_[i - 1]).count());
    }
    std::sort(gaps.begin(), gaps.end());
    return gaps;
  }

 private:
  void end(const std::string& error) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    error_ = error;
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Clock::time_point> times_;
  bool ended_ = false;
  std::string error_;
};

std::shared_ptr<TokenTimes> start(serve::EngineLoop& loop, const ModelConfig& model, int tokens,
                                  int64_t max_tokens) {
  serve::GenerationRequest request;
  for (int i = 0; i < tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>((int64_t{i} * i + tokens) % model.vocab_size));
  }
  request.answer.max_tokens = max_tokens;
  for (const int32_t id : model.eos_ids) request.answer.sampling.logit_bias.emplace_back(id, -1e9f);
  auto times = std::make_shared<TokenTimes>();
  request.observer = times;
  loop.submit(std::move(request));
  return times;
}

void print(const char* what, const std::vector<double>& gaps) {
  if (gaps.empty()) throw InputError("no two tokens came; give more --tokens");
  const auto at = [&](double share) {
    return gaps[static_cast<size_t>(share * static_cast<double>(gaps.size() - 1))];
  };
  fmt::print("  {}: {} times, p50 {:.2f} ms, p99 {:.2f} ms, most {:.2f} ms\n", what, gaps.size(),
             at(0.5), at(0.99), gaps.back());
}

void run_round(OpenModel& opened, Runtime& runtime, const std::string& dir, int tokens) {
  serve::EngineLoop loop(
      opened.model, runtime, nullptr,
      {.sessions = serve::SuspensionOptions{.dir = dir, .fingerprint = "bench"}});
  const ModelConfig& model = opened.model.config();
  start(loop, model, tokens, 1)->wait();
  const auto stream = start(loop, model, 200, int64_t{1} << 20);
  stream->wait_for_tokens(100);
  const auto alone_from = Clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::vector<double> alone = stream->gaps_since(alone_from);
  const auto evicted_from = Clock::now();
  loop.evict_idle();
  while (loop.status().suspension.suspended == 0) {
    if (Clock::now() - evicted_from > kMaxEviction) {
      throw InputError(
          fmt::format("{}: the session was not written in a minute; is there room?", dir));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::vector<double> beside = stream->gaps_since(evicted_from);
  const std::chrono::duration<double> took = Clock::now() - evicted_from;
  fmt::print("{:.0f} MiB on disk after {:.2f} s; between the stream's tokens:\n",
             static_cast<double>(loop.status().suspension.disk_bytes) / (1 << 20), took.count());
  print("alone", alone);
  print("beside the eviction", beside);
}

void run(const Options& options) {
  Config config;
  config.device.name = options.device;
  OpenModel opened = open_model(options.model, config);
  const auto runtime = opened.make_runtime();
  for (int round = 0; round < options.rounds; ++round) {
    const std::string dir = fmt::format("{}/{}", options.dir, round);
    run_round(opened, *runtime, dir, options.tokens);
    std::filesystem::remove_all(dir);
  }
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  fasa::bench::Options options;
  CLI::App app("A stream beside a session that is evicted: bench/session_eviction --dir DIR");
  app.add_option("--dir", options.dir, "A folder on the disk that is written to")->required();
  app.add_option("--model", options.model);
  app.add_option("--device", options.device);
  app.add_option("--tokens", options.tokens, "Tokens of the session");
  app.add_option("--rounds", options.rounds);
  CLI11_PARSE(app, argc, argv);
  try {
    fasa::bench::run(options);
  } catch (const fasa::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
