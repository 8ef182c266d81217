// What the tests of kernel bodies share: the orders in which each is run.
#pragma once

#include <string>
#include <vector>

#include "tests/support/simt_interpreter.h"

namespace fasa {

struct SimtRun {
  SimtInterpreter::Order order;
  unsigned seed;
};

inline std::vector<SimtRun> simt_runs() {
  using Order = SimtInterpreter::Order;
#if defined(__SANITIZE_ADDRESS__)
  return {{Order::kRandom, 1}};  // several times slower there, and memory faults know no order
#endif
  return {{Order::kRising, 1}, {Order::kFalling, 1}, {Order::kRandom, 1}, {Order::kRandom, 2}};
}

inline std::string name_of(const SimtRun& run) {
  using Order = SimtInterpreter::Order;
  return run.order == Order::kRising    ? "Rising"
         : run.order == Order::kFalling ? "Falling"
                                        : "Random" + std::to_string(run.seed);
}

}  // namespace fasa
