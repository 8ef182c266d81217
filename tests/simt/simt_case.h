// Shared by the tests of kernel bodies: the orders in which each body runs.
#pragma once

#include <cstdlib>
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
  // sanitizer builds are several times slower, and memory faults do not depend on the order
  return {{Order::kRandom, 1}};
#elif defined(FASA_EXECUTE_PTX)
  if (std::getenv("FASA_PTX_ORDERS") != nullptr) return {{Order::kRising, 1}};
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
