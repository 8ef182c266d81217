// What kernel calls take on a GPU besides moving their bytes at the memory's bandwidth: launches
// that follow each other, chains of loads that depend on each other, instructions for each byte.
// Plans, the choice of head groups and the emulated device's clock use them. Measured on an H100;
// docs/results/cuda-kernels.md says how.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace fasa {

// Seconds. Defaults of the last three: an RTX 4060 Ti's.
struct KernelCosts {
  // What a multiprocessor did in a cycle: bytes of slices; of rows and value codes; operations of a
  // prompt's attention, and their share of the peak where that is less (assumed).
  static constexpr double kScored = 1.4;
  static constexpr double kAttended = 2.4;
  static constexpr double kPrompt = 830;
  static constexpr double kOfPeak = 0.85;
  // What a page of slices, and one of value codes, costs again for the next token of its sequence
  // (StepParams::together), counted from instructions.
  static constexpr double kScoredAgain = 0.5;
  static constexpr double kAttendedAgain = 0.3;

  double launch = 2.7e-6;        // a kernel that follows another in its stream
  double select = 31e-6;         // all its kernels, however many heads and pages
  double ranked_token = 3.8e-9;  // of a head's set, low-bit list or runners-up
  double low_bit_token = 13e-9;  // of a low-bit list, in addition: its scores are looked up
  double resolve = 8.3e-6;       // also a fetch, or a claim of hot slots
  double hot_slot = 0.68e-9;     // of a head and sequence: a resolve reads all of them twice
  double attend = 4.7e-6;        // partial softmaxes and their fold
  double scored_byte = 1 / (kScored * 86.2e9);        // of a select, at least
  double attended_byte = 1 / (kAttended * 86.2e9);    // of a decode step's attention, at least
  double prompt_operation = 1 / (kOfPeak * 44.1e12);  // of a prompt's attention, at least

  // The rates of a GPU with `cycles` multiprocessor cycles a second (multiprocessors * clock) and
  // `operations` of matrix products a second (0: not known).
  void set_rates(double cycles, double operations);

  // The usual GPU with launches of `launch_seconds`, and everything else in proportion.
  static KernelCosts with_launch(double launch_seconds);

  // With the sizes of one head.
  double select_seconds(int64_t set, int64_t low_bit, int64_t runners_up) const {
    return select + static_cast<double>(set + low_bit + runners_up) * ranked_token +
           static_cast<double>(low_bit) * low_bit_token;
  }
  double resolve_seconds(int64_t hot_slots) const {
    return resolve + static_cast<double>(hot_slots) * hot_slot;
  }

  // "launch 2.7 us, select 31.0 us + 3.8 ns a token, ..."
  std::string text() const;

  bool operator==(const KernelCosts&) const = default;
};

inline void KernelCosts::set_rates(double cycles, double operations) {
  scored_byte = 1 / (kScored * cycles);
  attended_byte = 1 / (kAttended * cycles);
  prompt_operation = 1 / (kPrompt * cycles);
  if (operations > 0) prompt_operation = std::max(prompt_operation, 1 / (kOfPeak * operations));
}

inline KernelCosts KernelCosts::with_launch(double launch_seconds) {
  KernelCosts costs;
  const double factor = launch_seconds / costs.launch;
  for (double* seconds : {&costs.launch, &costs.select, &costs.ranked_token, &costs.low_bit_token,
                          &costs.resolve, &costs.hot_slot, &costs.attend, &costs.scored_byte,
                          &costs.attended_byte, &costs.prompt_operation}) {
    *seconds *= factor;
  }
  return costs;
}

}  // namespace fasa
