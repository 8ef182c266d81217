// How many prompt tokens a step may take, so that those who stream do not wait long for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace fasa::serve {

inline double seconds_between(std::chrono::steady_clock::time_point begin,
                              std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Measures steps, and sizes the next prefill by them. Sizes change times, never bits: prefill is the
// same in any chunks.
//
// A chunk costs something before its first token: its weights are read, and unpacked where they are
// packed. That is found from the quickest chunk and the least time a token of a chunk, as it depends
// on neither the context nor the batch.
class PrefillBudget {
 public:
  static constexpr int kMinChunk = 16;
  static constexpr double kAutomaticMost = 0.1;  // seconds
  // Of a chunk's time, the automatic budget spends at least so much on its tokens.
  static constexpr double kUsefulShare = 0.75;

  // `max_step_seconds` 0: twice the decode step of the moment, at most kAutomaticMost, or what a
  // chunk takes that is worth its fixed cost.
  PrefillBudget(double max_step_seconds, int largest_chunk)
      : max_step_seconds_(max_step_seconds), largest_chunk_(largest_chunk) {}

  void decoded(double seconds);
  void prefilled(int64_t tokens, double seconds);
  // Prompt tokens for a step beside sequences that decode; the largest chunk where none does.
  int chunk(bool others_decode) const;

  double decode_seconds() const { return decode_seconds_; }
  // Of a chunk, before its first token.
  double fixed_seconds() const;

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  double max_step_seconds_;
  int largest_chunk_;
  double decode_seconds_ = 0;     // of a step, lately
  double prefill_per_token_ = 0;  // seconds beyond the fixed cost, lately
  double min_seconds_ = kNone;    // of a chunk, ever
  int64_t min_tokens_ = 0;        // of that chunk
  double min_per_token_ = kNone;  // seconds of a chunk a token, ever
  int64_t max_tokens_ = 0;        // of that chunk
};

}  // namespace fasa::serve
