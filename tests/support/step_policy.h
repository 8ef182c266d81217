// Chooses the next stream of a stepped device, where several can run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fasa {

// A stream whose next operation may run.
struct RunnableStream {
  size_t index = 0;  // index among the live streams, in order of creation
  std::string_view name;
  uint64_t sequence = 0;  // of the next operation: its number among all enqueued operations
};

// Chooses one of at least one streams; returns its index in the span.
using StepPolicy = std::function<size_t(std::span<const RunnableStream>)>;

// The order in which operations were enqueued.
inline StepPolicy fifo() {
  return [](std::span<const RunnableStream> streams) {
    const auto found =
        std::min_element(streams.begin(), streams.end(),
                         [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
    return static_cast<size_t>(found - streams.begin());
  };
}

// The operation enqueued last among those that may run.
inline StepPolicy lifo() {
  return [](std::span<const RunnableStream> streams) {
    const auto found =
        std::max_element(streams.begin(), streams.end(),
                         [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
    return static_cast<size_t>(found - streams.begin());
  };
}

// One stream as far as it can go before the next: the youngest first, so copy streams go in reverse
// order.
inline StepPolicy youngest_stream_first() {
  return [](std::span<const RunnableStream> streams) { return streams.size() - 1; };
}
inline StepPolicy oldest_stream_first() {
  return [](std::span<const RunnableStream>) { return size_t{0}; };
}

inline StepPolicy random_order(uint64_t seed) {
  return [random = std::mt19937_64(seed)](std::span<const RunnableStream> streams) mutable {
    return static_cast<size_t>(random() % streams.size());
  };
}

// Streams whose names begin with `prefix` run only when no other can; `among` chooses among the
// others.
inline StepPolicy starve(std::string prefix, StepPolicy among = fifo()) {
  return [prefix = std::move(prefix),
          among = std::move(among)](std::span<const RunnableStream> streams) {
    std::vector<RunnableStream> others;
    std::vector<size_t> places;
    for (size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].name.starts_with(prefix)) continue;
      others.push_back(streams[i]);
      places.push_back(i);
    }
    return others.empty() ? among(streams) : places[among(others)];
  };
}

}  // namespace fasa
