#include "tests/support/simt_interpreter.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace fasa {
namespace {

constexpr std::byte kPattern{0xA5};
constexpr int kWarp = simt::kWarpThreads;

}  // namespace

void SimtInterpreter::run(const simt::Grid& grid, int threads, const std::function<void()>& body) {
  if (grid.y > kMostBlocks || grid.z > kMostBlocks) {
    throw SimtError("a grid of " + std::to_string(grid.y) + " x " + std::to_string(grid.z) +
                    " blocks in y and z: at most 65535 each");
  }
  if (grid.shared_bytes > kMostShared) {
    throw SimtError("blocks of " + std::to_string(grid.shared_bytes) +
                    " bytes of shared memory: at most " + std::to_string(kMostShared));
  }
  if (threads < kWarp || threads % kWarp != 0) {
    throw SimtError("blocks of " + std::to_string(threads) + " threads: not a multiple of 32");
  }
  while (threads_.size() < static_cast<size_t>(2 * threads)) {
    threads_.push_back(std::make_unique<Thread>());
    threads_.back()->owner = this;
  }
  std::vector<int> blocks(static_cast<size_t>(grid.x * grid.y * grid.z));
  std::iota(blocks.begin(), blocks.end(), 0);
  if (order_ == Order::kFalling) std::reverse(blocks.begin(), blocks.end());
  if (order_ == Order::kRandom) std::shuffle(blocks.begin(), blocks.end(), random_);
  body_ = &body;
  simt::Machine* const before = std::exchange(simt::current_machine, this);
  try {
    const bool by_turns = order_ == Order::kRandom && random_() % 2 == 0;
    const size_t at_once = by_turns ? 2 : 1;
    for (size_t i = 0; i < blocks.size(); i += at_once) {
      const size_t count = std::min(at_once, blocks.size() - i);
      run_blocks(std::span(blocks).subspan(i, count), grid, threads);
    }
  } catch (...) {
    simt::current_machine = before;
    throw;
  }
  simt::current_machine = before;
}

void SimtInterpreter::enter(void* thread) {
  auto* self = static_cast<Thread*>(thread);
  (*self->owner->body_)();
  self->owner->state_of(*self) = State::kEnded;
  self->fiber.leave_for_good();
}

void SimtInterpreter::run_blocks(std::span<const int> blocks, const simt::Grid& grid, int threads) {
  shared_.clear();
  for (size_t i = 0; i < blocks.size(); ++i) {
    shared_.emplace_back(static_cast<size_t>(grid.shared_bytes), kPattern);
  }
  block_threads_ = threads;
  count_ = static_cast<int>(blocks.size()) * threads;
  states_.assign(static_cast<size_t>(count_), State::kReady);
  for (int i = 0; i < count_; ++i) {
    const int block = blocks[static_cast<size_t>(i / threads)];
    Thread& thread = *threads_[static_cast<size_t>(i)];
    thread.index = i;
    thread.place = {i % threads,
                    threads,
                    {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y},
                    {grid.x, grid.y, grid.z}};
    thread.copies.clear();
    thread.groups.clear();
    thread.open_group = 0;
    thread.fiber.prepare(&SimtInterpreter::enter, &thread);
  }
  while (true) {
    const bool ran = run_ready();
    stop_at_fault();
    settle_warps();
    stop_at_fault();
    if (!ran) {
      const auto of = [this](State state) {
        return std::count(states_.begin(), states_.end(), state);
      };
      if (of(State::kEnded) == count_) return;
      if (of(State::kReady) > 0) continue;
      if (of(State::kInCollective) > 0) {
        const auto stuck = std::find(states_.begin(), states_.end(), State::kInCollective);
        fault_ = where(*threads_[static_cast<size_t>(stuck - states_.begin())]) +
                 ": waits in a warp's collective for lanes that never come";
        stop_at_fault();
      }
      release_barrier();
    }
  }
}

bool SimtInterpreter::run_ready() {
  int first = order_ == Order::kFalling ? count_ - 1 : 0;
  int step = order_ == Order::kFalling ? count_ - 1 : 1;
  int turns = count_;
  if (order_ == Order::kRandom) {
    // Alternately steps all threads and only some of them, so that the others fall behind.
    const auto count = static_cast<unsigned>(count_);
    first = static_cast<int>(random_() % count);
    do {
      step = 1 + static_cast<int>(random_() % count);
    } while (std::gcd(step, count_) != 1);
    if (random_() % 2 == 0) turns = 1 + static_cast<int>(random_() % count);
  }
  bool ran = false;
  for (int turn = 0, i = first; turn < turns; ++turn, i = (i + step) % count_) {
    if (states_[static_cast<size_t>(i)] != State::kReady) continue;
    Thread& thread = *threads_[static_cast<size_t>(i)];
    ran = true;
    running_ = &thread;
    inside_ = true;
    thread.fiber.resume();
    inside_ = false;
    if (!fault_.empty()) break;
  }
  return ran;
}

void SimtInterpreter::settle_warps() {
  for (int warp = 0; warp < count_; warp += kWarp) {
    for (int lane = 0; lane < kWarp; ++lane) {
      if (states_[static_cast<size_t>(warp + lane)] == State::kInCollective) {
        settle_collective(warp + lane);
      }
    }
  }
}

// Completes the collective that thread `first` is in, if all of its lanes are there. A lane in a
// collective whose mask lacks `first` arrives at this one later.
void SimtInterpreter::settle_collective(int first) {
  const Thread& caller = *threads_[static_cast<size_t>(first)];
  const int warp = first / kWarp * kWarp;
  void* lanes[kWarp] = {};
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((caller.mask >> lane & 1) == 0) continue;
    const Thread& other = *threads_[static_cast<size_t>(warp + lane)];
    const State state = states_[static_cast<size_t>(warp + lane)];
    if (state == State::kEnded) {
      fault_ =
          where(caller) + ": a collective with lane " + std::to_string(lane) + ", which has ended";
      return;
    }
    if (state != State::kInCollective) return;
    if (other.mask != caller.mask && (other.mask >> (first % kWarp) & 1) == 0) return;
    if (other.mask != caller.mask || other.combine != caller.combine) {
      fault_ = where(caller) + ": lane " + std::to_string(lane) +
               " of the mask is in another collective";
      return;
    }
    lanes[lane] = other.operands;
  }
  caller.combine(lanes, caller.mask);
  const uint32_t mask = caller.mask;
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1) != 0) states_[static_cast<size_t>(warp + lane)] = State::kReady;
  }
}

// Releases one block's barrier; other blocks may still wait at theirs.
void SimtInterpreter::release_barrier() {
  const auto waits = [&](size_t block) {
    const auto first = states_.begin() + static_cast<std::ptrdiff_t>(block) * block_threads_;
    return std::find(first, first + block_threads_, State::kAtBarrier) != first + block_threads_;
  };
  size_t block = shared_.size() == 1 ? 0 : random_() % shared_.size();
  if (!waits(block)) block = shared_.size() - 1 - block;
  const auto first = states_.begin() + static_cast<std::ptrdiff_t>(block) * block_threads_;
  std::replace(first, first + block_threads_, State::kAtBarrier, State::kReady);
}

// Abandons the threads that are under way: kernel bodies own no resources.
void SimtInterpreter::stop_at_fault() {
  if (fault_.empty()) return;
  throw SimtError(std::exchange(fault_, {}));
}

std::byte* SimtInterpreter::shared_memory() {
  return shared_[static_cast<size_t>(running_->index / block_threads_)].data();
}

void SimtInterpreter::sync_block() {
  state_of(*running_) = State::kAtBarrier;
  running_->fiber.leave();
}

void SimtInterpreter::collective(uint32_t mask, void* operands, Combine combine) {
  Thread& self = *running_;
  if ((mask >> (self.place.thread % kWarp) & 1) == 0) {
    fault("a collective's mask without its caller", self.place.thread % kWarp, 0);
  }
  self.mask = mask;
  self.operands = operands;
  self.combine = combine;
  state_of(self) = State::kInCollective;
  self.fiber.leave();
}

void SimtInterpreter::yield() {
  if (order_ != Order::kRandom || random_() % 4 != 0) return;
  running_->fiber.leave();
}

void SimtInterpreter::copy_later(void* to, const void* from, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0 ||
      reinterpret_cast<uintptr_t>(from) % bytes != 0) {
    fault("an asynchronous copy that is not at whole words of bytes",
          running_->place.thread % kWarp, static_cast<int>(bytes));
  }
  if (order_ == Order::kFalling || (order_ == Order::kRandom && random_() % 2 == 0)) {
    std::memcpy(to, from, bytes);
    return;
  }
  running_->copies.push_back({to, from, bytes});
  ++running_->open_group;
}

void SimtInterpreter::commit_copies() {
  running_->groups.push_back(std::exchange(running_->open_group, 0));
}

void SimtInterpreter::finish_copies(int left) {
  Thread& self = *running_;
  while (self.groups.size() > static_cast<size_t>(left)) {
    const auto done = self.copies.begin() + static_cast<std::ptrdiff_t>(self.groups.front());
    for (auto copy = self.copies.begin(); copy != done; ++copy) {
      std::memcpy(copy->to, copy->from, copy->bytes);
    }
    self.copies.erase(self.copies.begin(), done);
    self.groups.erase(self.groups.begin());
  }
}

void SimtInterpreter::fault(const char* what, int lane, int other) {
  fault_ = where(*running_) + ": " + what + " (lane " + std::to_string(lane) + ", " +
           std::to_string(other) + ")";
  if (inside_) running_->fiber.leave();  // never resumed
}

std::string SimtInterpreter::where(const Thread& thread) const {
  const simt::Place& at = thread.place;
  return "block (" + std::to_string(at.block[0]) + ", " + std::to_string(at.block[1]) + ", " +
         std::to_string(at.block[2]) + ") thread " + std::to_string(at.thread);
}

}  // namespace fasa
