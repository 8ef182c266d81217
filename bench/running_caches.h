// Hot rows into which runners-up are fetched, simulated on recorded rankings: for each capacity and
// each bound of the list, what a step misses and what it fetches ahead.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace fasa::bench {

// Hot rows of one head as a list, most recent first. After each step the runners-up that are not in
// it are fetched and enter just behind the set.
class RunningCache {
 public:
  // `bound`: how far the runners-up go, in sets; 1: none.
  RunningCache(size_t capacity, double bound) : capacity_(capacity), bound_(bound) {}

  int64_t wanted = 0, missed = 0, fetched = 0, used = 0;

  // `set`: a step's competing tokens. `runners_up`: those behind it, best first. Steps that are not
  // counted fill the cache.
  void step(std::span<const int32_t> set, std::span<const int32_t> runners_up, bool counts) {
    const std::set<int32_t> taken(set.begin(), set.end());
    const std::set<int32_t> hot(list_.begin(), list_.end());
    for (const int32_t position : set) {
      const bool unused = ahead_.erase(position) > 0;
      if (!counts) continue;
      ++wanted;
      missed += hot.contains(position) ? 0 : 1;
      used += unused ? 1 : 0;
    }
    std::vector<int32_t> list(set.begin(), set.end());
    const auto most = static_cast<size_t>((bound_ - 1) * static_cast<double>(set.size()));
    std::set<int32_t> entered = taken;
    for (const int32_t position : runners_up.first(std::min(most, runners_up.size()))) {
      if (hot.contains(position)) continue;
      list.push_back(position);
      entered.insert(position);
      ahead_.insert(position);
      fetched += counts ? 1 : 0;
    }
    for (const int32_t position : list_) {
      if (!entered.contains(position)) list.push_back(position);
    }
    while (list.size() > capacity_) {
      ahead_.erase(list.back());
      list.pop_back();
    }
    list_ = std::move(list);
  }

 private:
  size_t capacity_;
  double bound_;
  std::vector<int32_t> list_;
  std::set<int32_t> ahead_;  // fetched ahead and not used yet
};

// One head's caches, or sums over heads: every capacity with every bound.
class RunningCaches {
 public:
  RunningCaches() = default;
  explicit RunningCaches(int set) {
    for (const int sets : kSets) {
      for (const double bound : kBounds) {
        caches_.emplace_back(static_cast<size_t>(sets * set), bound);
      }
    }
  }

  void step(std::span<const int32_t> set, std::span<const int32_t> runners_up, bool counts) {
    for (RunningCache& cache : caches_) cache.step(set, runners_up, counts);
  }
  void add(const RunningCaches& other) {
    if (caches_.empty()) {
      caches_ = other.caches_;
      return;
    }
    for (size_t i = 0; i < caches_.size(); ++i) {
      caches_[i].wanted += other.caches_[i].wanted;
      caches_[i].missed += other.caches_[i].missed;
      caches_[i].fetched += other.caches_[i].fetched;
      caches_[i].used += other.caches_[i].used;
    }
  }
  void print() const {
    fmt::print(
        "\nRunners-up in a running cache, percent of the set a step: missed / fetched ahead / "
        "share of these used\n\n| hot rows, sets |");
    for (const double bound : kBounds) fmt::print(" to x{} |", bound);
    fmt::print("\n|---|---|---|---|---|\n");
    size_t i = 0;
    for (const int sets : kSets) {
      fmt::print("| {} |", sets);
      for (size_t bound = 0; bound < std::size(kBounds); ++bound) {
        const RunningCache& cache = caches_[i++];
        fmt::print(" {:.1f} / {:.1f} / {:.0f} |", percent(cache.missed, cache.wanted),
                   percent(cache.fetched, cache.wanted), percent(cache.used, cache.fetched));
      }
      fmt::print("\n");
    }
  }

 private:
  static constexpr int kSets[] = {2, 4, 8, 16};
  static constexpr double kBounds[] = {1.0, 1.5, 2.0, 4.0};
  static double percent(int64_t part, int64_t all) {
    return 100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, all));
  }

  std::vector<RunningCache> caches_;
};

}  // namespace fasa::bench
