// Which stream of a stepped device goes next, where several could.
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
  size_t index = 0;  // of the streams that live, in the order of their creation
  std::string_view name;
  uint64_t sequence = 0;  // of the next operation: its place among all enqueued ones
};

// Chooses one of at least one, by its place in the span.
using StepPolicy = std::function<size_t(std::span<const RunnableStream>)>;

// The order in which everything was enqueued.
inline StepPolicy fifo() {
  return [](std::span<const RunnableStream> streams) {
    const auto found =
        std::min_element(streams.begin(), streams.end(),
                         [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
    return static_cast<size_t>(found - streams.begin());
  };
}

// What was enqueued last, of all that may run.
inline StepPolicy lifo() {
  return [](std::span<const RunnableStream> streams) {
    const auto found =
        std::max_element(streams.begin(), streams.end(),
                         [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
    return static_cast<size_t>(found - streams.begin());
  };
}

// One stream as far as it goes before another: the youngest first, so lanes go in reverse order.
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

// Streams whose name begins so run only when nothing else can; the others by `among`.
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
