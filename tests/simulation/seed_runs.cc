#include "tests/simulation/seed_runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "tests/simulation/draw.h"

namespace fasa::testing {
namespace {

constexpr size_t kMaxJobs = 64;
constexpr uint64_t kNoSeed = UINT64_MAX;

// Each thread's current seed, printed if the process crashes.
struct Place {
  std::atomic<uint64_t> seed = kNoSeed;
  std::atomic<int64_t> operation = 0;
};
std::array<Place, kMaxJobs> places;
thread_local Place* own_place = nullptr;

std::string repeat_command(uint64_t seed, int64_t operations) {
  return fmt::format("tools/simulate --seeds {0}..{0} --operations {1} --verbose", seed,
                     operations);
}

// Formatting in a signal handler is not safe in general, but the process is lost anyway.
void on_crash(int signal) {
  for (const Place& place : places) {
    if (place.seed == kNoSeed) continue;
    const std::string text = fmt::format(
        "\nsignal {} in one of these: seed {}, operation {}\n  again: {}\n", signal,
        place.seed.load(), place.operation.load(), repeat_command(place.seed, place.operation + 1));
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) break;
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::string failure_text(const World& world, uint64_t seed, int64_t operation,
                         const std::deque<std::string>& trail, const char* what) {
  std::string text = fmt::format("seed {}, operation {}: {}\n  {}\n  before it:\n", seed, operation,
                                 what, world.setup());
  for (const std::string& line : trail) text += "    " + line + '\n';
  return text + "  again: " + repeat_command(seed, operation + 1);
}

std::string own_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  Digest digest;
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  digest.add(bytes.data(), bytes.size());
  return fmt::format("{:016x}", digest.value());
}

// A range's progress: the seeds before `next` are done. A different program starts again.
class State {
 public:
  explicit State(const SeedRuns& runs)
      : path_(runs.state),
        key_(fmt::format("{} {} {} {}", runs.first, runs.last, runs.operations,
                         path_.empty() ? "" : own_program())),
        next_(runs.first) {
    std::ifstream file(path_);
    std::string key;
    if (path_.empty() || !std::getline(file, key)) return;
    if (key != key_) {
      std::cout << "the state in " << path_ << " is of another program or range: from the start\n";
      return;
    }
    Tally& t = total_;
    file >> next_ >> seconds_ >> t.operations >> t.steps >> t.compared >> t.injected >> t.refused >>
        t.poisoned;
  }

  uint64_t next() const { return next_; }
  const Tally& total() const { return total_; }
  double seconds() const { return seconds_; }

  void done(const SeedResult& result) {
    finished_.emplace(result.seed, result.tally);
    for (auto it = finished_.begin(); it != finished_.end() && it->first == next_;) {
      total_ += it->second;
      ++next_;
      it = finished_.erase(it);
    }
  }
  void save(double seconds) const {
    if (path_.empty()) return;
    const Tally& t = total_;
    const std::string temporary = path_ + ".part";
    std::ofstream(temporary) << fmt::format("{}\n{} {} {} {} {} {} {} {}\n", key_, next_,
                                            seconds_ + seconds, t.operations, t.steps, t.compared,
                                            t.injected, t.refused, t.poisoned);
    std::rename(temporary.c_str(), path_.c_str());
  }

 private:
  const std::string path_;
  const std::string key_;
  uint64_t next_;
  double seconds_ = 0;
  Tally total_;
  std::map<uint64_t, Tally> finished_;
};

void print_totals(const SeedRuns& runs, const State& state, double seconds) {
  const Tally& t = state.total();
  const uint64_t seeds = state.next() - runs.first;
  std::cout << fmt::format(
      "{} seeds of {} operations: {} steps, {} outputs compared, {} faults met, {} calls refused "
      "memory, {} sequences lost to failures; {:.0f} s, {:.1f} seeds/s\n",
      seeds, runs.operations, t.steps, t.compared, t.injected, t.refused, t.poisoned, seconds,
      static_cast<double>(seeds) / seconds);
}

}  // namespace

void SeedRuns::take(const std::string& range) {
  const size_t dots = range.find("..");
  try {
    size_t used = 0;
    first = std::stoull(range, &used);
    last = dots == std::string::npos ? first : std::stoull(range.substr(dots + 2));
  } catch (const std::logic_error&) {
    throw UsageError(fmt::format("--seeds = \"{}\"; allowed: A..B, whole numbers", range));
  }
  if (last < first) throw UsageError(fmt::format("--seeds = \"{}\": ends before it begins", range));
}

SeedResult run_seed(uint64_t seed, const SeedRuns& runs) {
  constexpr size_t kTrail = 12;
  SeedResult result;
  result.seed = seed;
  World world(seed, runs.faults);
  std::deque<std::string> trail;
  int64_t operation = 0;
  if (runs.verbose) std::cout << world.setup() << '\n';
  const auto tell = [&] {
    if (world.last().empty()) return;
    trail.push_back(fmt::format("{}: {}", operation, world.last()));
    if (trail.size() > kTrail) trail.pop_front();
    if (runs.verbose) std::cout << trail.back() << std::endl;
  };
  try {
    for (; operation < runs.operations; ++operation) {
      if (own_place != nullptr) own_place->operation = operation;
      world.run(operation);
      tell();
    }
    world.close();
  } catch (const std::exception& error) {
    tell();
    result.failure = failure_text(world, seed, operation, trail, error.what());
  }
  result.digest = world.digest();
  result.tally = world.tally();
  return result;
}

bool run_seeds(const SeedRuns& runs) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE}) std::signal(signal, on_crash);
  State state(runs);
  if (state.next() > runs.first) std::cout << "goes on at seed " << state.next() << std::endl;
  std::mutex mutex;
  uint64_t next = state.next();
  std::optional<std::string> failure;
  const auto begun = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  double told = 0;
  const auto work = [&](size_t job) {
    own_place = &places[job];
    for (;;) {
      uint64_t seed = 0;
      {
        const std::lock_guard lock(mutex);
        if (next > runs.last || failure) break;
        seed = next++;
      }
      own_place->seed = seed;
      const SeedResult result = run_seed(seed, runs);
      own_place->seed = kNoSeed;
      const std::lock_guard lock(mutex);
      if (result.failure) {
        if (!failure) failure = result.failure;
        break;
      }
      state.done(result);
      if (seconds() < told + 10) continue;
      told = seconds();
      state.save(told);
      print_totals(runs, state, state.seconds() + told);
    }
  };
  std::vector<std::thread> threads;
  const size_t jobs = std::min(kMaxJobs, static_cast<size_t>(std::max(runs.jobs, 1)));
  for (size_t job = 1; job < jobs; ++job) threads.emplace_back(work, job);
  work(0);
  for (std::thread& thread : threads) thread.join();
  state.save(seconds());
  print_totals(runs, state, state.seconds() + seconds());
  if (failure) std::cout << *failure << std::endl;
  return !failure;
}

}  // namespace fasa::testing
