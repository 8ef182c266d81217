#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/support/ptx/warp.h"

namespace fasa::ptx {
namespace {

// Warps by turns; a barrier is passed when all wait for it.
void run_block(Block& block) {
  std::vector<size_t> order(block.warps.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (block.options.falling) std::ranges::reverse(order);
  for (;;) {
    if (block.options.seed != 0) std::shuffle(order.begin(), order.end(), block.random);
    bool alive = false;
    for (const size_t index : order) {
      Warp& warp = *block.warps[index];
      if (warp.ended()) continue;
      warp.run();
      alive = alive || !warp.ended();
    }
    if (!alive) return;
    for (const auto& warp : block.warps) warp->check_at_barrier();
    block.shared.pass_barrier();
    for (const auto& warp : block.warps) warp->pass_barrier();
  }
}

void check(const Entry& entry, size_t param_bytes, int threads) {
  if (static_cast<int64_t>(param_bytes) != entry.param_bytes) {
    throw Error(fmt::format("{}: parameters of {} bytes, the PTX has {}", entry.name, param_bytes,
                            entry.param_bytes));
  }
  if (entry.max_threads != 0 && threads > entry.max_threads) {
    throw Error(fmt::format("{}: {} threads, allowed: {}", entry.name, threads, entry.max_threads));
  }
}

}  // namespace

void launch(const Entry& entry, const void* params, size_t param_bytes, const int (&grid)[3],
            int threads, int64_t shared_bytes, const Options& options) {
  check(entry, param_bytes, threads);
  // Register files are large: warps are used again.
  static thread_local std::map<const Entry*, std::vector<std::unique_ptr<Warp>>> pool;
  const int warps = (threads + kLanes - 1) / kLanes;
  Block block;
  block.entry = &entry;
  block.options = options;
  block.threads = threads;
  block.random.seed(options.seed);
  const auto* const bytes = static_cast<const std::byte*>(params);
  block.params.assign(bytes, bytes + param_bytes);
  std::ranges::copy(grid, block.grid);
  block.warps.swap(pool[&entry]);
  while (std::ssize(block.warps) < warps) block.warps.push_back(std::make_unique<Warp>());
  block.warps.resize(static_cast<size_t>(warps));
  const int blocks = grid[0] * grid[1] * grid[2];
  for (int turn = 0; turn < blocks; ++turn) {
    const int at = options.falling ? blocks - 1 - turn : turn;
    block.index[0] = at % grid[0];
    block.index[1] = at / grid[0] % grid[1];
    block.index[2] = at / grid[0] / grid[1];
    block.shared.clear(static_cast<size_t>(shared_bytes));
    for (int warp = 0; warp < warps; ++warp) {
      block.warps[static_cast<size_t>(warp)]->begin(block, warp,
                                                    std::min(kLanes, threads - warp * kLanes));
    }
    run_block(block);
  }
  pool[&entry].swap(block.warps);
}

}  // namespace fasa::ptx
