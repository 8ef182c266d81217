// Pseudo-random numbers from a seed, the same on every machine and with every standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>

namespace fasa::testing {

// Splitmix64.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  // The generator of one operation: independent of how much other operations drew.
  Draw(uint64_t seed, uint64_t operation) : state_(mix(seed * 0x9e3779b97f4a7c15ull + operation)) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ull;
    return mix(state_);
  }
  int64_t below(int64_t end) {  // [0, end), end > 0
    return static_cast<int64_t>(next() % static_cast<uint64_t>(end));
  }
  int64_t between(int64_t first, int64_t last) { return first + below(last - first + 1); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <typename T>
  T of(std::initializer_list<T> values) {
    return *(values.begin() + below(static_cast<int64_t>(values.size())));
  }

 private:
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

// A digest of the actions and results of a run: identical runs have equal digests.
class Digest {
 public:
  void add(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ull + (hash_ >> 47); }
  void add(const void* data, size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) add(at[i]);
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325ull;
};

}  // namespace fasa::testing
