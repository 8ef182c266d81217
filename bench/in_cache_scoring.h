// The compute floor: how fast this processor scores slice pages that are in its cache.
#pragma once

#include <benchmark/benchmark.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "bench/stream.h"
#include "kernels/cpu/select/page_scorer.h"
#include "kernels/slice_format.h"

namespace fasa::bench {

// Seconds that all threads together take for one page and KV head of four query heads, without
// selection: the best of several rounds.
inline double in_cache_page_seconds(SliceFormat format) {
  constexpr int kRounds = 7;
  constexpr int kPages = 2000;  // per task
  const int tasks = tbb::this_task_arena::max_concurrency() * 4;
  const cpu::ScoreBodies& bodies = cpu::score_bodies(cpu::active_target());
  const auto score = bodies.score[cpu::score_index(format.dtype)];
  const auto work = [&](int) {
    struct alignas(64) Line {
      float values[16];
    };
    const size_t stride = static_cast<size_t>(format.padded_dims() + 63) / 64 * 64;
    std::vector<Line> query(stride * cpu::kScoreHeads / 16, Line{{0.5f, -0.25f}});
    std::vector<Line> weights(query.size());
    std::vector<Line> codes(query.size());
    std::vector<Line> scores(kPageTokens * cpu::kScoreHeads / 16);
    std::vector<Line> page(static_cast<size_t>(format.page_bytes()) / sizeof(Line));
    const cpu::PageQuery page_query{
        query.front().values, weights.front().values,   reinterpret_cast<int8_t*>(codes.data()),
        cpu::kScoreHeads,     static_cast<int>(stride), format.padded_dims(),
        format.code_bytes()};
    for (int i = 0; i < kPages; ++i) {
      score(page_query, reinterpret_cast<const std::byte*>(page.data()), 1.0f, nullptr,
            scores.front().values);
      benchmark::DoNotOptimize(scores.data());
    }
  };
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    tbb::parallel_for(0, tasks, work);
    best = std::min(best, seconds_since(begin));
  }
  return best / (tasks * kPages);
}

}  // namespace fasa::bench
