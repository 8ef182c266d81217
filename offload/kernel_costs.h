// What kernel calls take on a GPU besides moving their bytes: launches that follow each other, and
// chains of loads that depend on each other. Plans, the choice of head groups and the emulated
// device's clock use them. From counts for sm_90; docs/results/cuda-kernels.md says how.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace fasa {

// Seconds.
struct KernelCosts {
  double launch = 4e-6;          // a kernel that follows another in its stream
  double select = 21e-6;         // all its kernels, however many heads and pages
  double ranked_token = 5e-9;    // of a head's set, low-bit list or runners-up
  double low_bit_token = 17e-9;  // of a low-bit list, in addition: its scores are looked up
  double resolve = 7e-6;         // also a fetch, or a claim of hot slots
  double hot_slot = 0.5e-9;      // of a head and sequence: a resolve reads all of them twice
  double attend = 7e-6;          // partial softmaxes and their fold

  // The same GPU with launches of `launch_seconds`, and everything else in proportion.
  static KernelCosts with_launch(double launch_seconds);

  // With the sizes of one head.
  double select_seconds(int64_t set, int64_t low_bit, int64_t runners_up) const {
    return select + static_cast<double>(set + low_bit + runners_up) * ranked_token +
           static_cast<double>(low_bit) * low_bit_token;
  }
  double resolve_seconds(int64_t hot_slots) const {
    return resolve + static_cast<double>(hot_slots) * hot_slot;
  }

  // "launch 4.0 us, select 21.0 us + 5.0 ns a token, ..."
  std::string text() const;

  bool operator==(const KernelCosts&) const = default;
};

inline KernelCosts KernelCosts::with_launch(double launch_seconds) {
  KernelCosts costs;
  const double factor = launch_seconds / costs.launch;
  for (double* seconds : {&costs.launch, &costs.select, &costs.ranked_token, &costs.low_bit_token,
                          &costs.resolve, &costs.hot_slot, &costs.attend}) {
    *seconds *= factor;
  }
  return costs;
}

}  // namespace fasa
