// How many prompt tokens a step may take, so that those who stream do not wait long for it.
#pragma once

#include <chrono>
#include <cstdint>

namespace fasa::serve {

inline double seconds_between(std::chrono::steady_clock::time_point begin,
                              std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Measures steps, and sizes the next prefill by them. Sizes change times, never bits: prefill is the
// same in any chunks.
class Pace {
 public:
  static constexpr int kLeastChunk = 16;
  static constexpr double kAutomaticMost = 0.1;  // seconds

  // `max_step_seconds` 0: twice the decode step of the moment, at most kAutomaticMost.
  Pace(double max_step_seconds, int largest_chunk)
      : max_step_seconds_(max_step_seconds), largest_chunk_(largest_chunk) {}

  void decoded(double seconds);
  void prefilled(int64_t tokens, double seconds);
  // Prompt tokens for a step beside sequences that decode; the largest chunk where none does.
  int chunk(bool others_decode) const;

  double decode_seconds() const { return decode_seconds_; }

 private:
  double max_step_seconds_;
  int largest_chunk_;
  double decode_seconds_ = 0;     // of a step, lately
  double prefill_per_token_ = 0;  // seconds, lately
};

}  // namespace fasa::serve
