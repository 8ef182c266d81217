#include "offload/kernel_costs.h"

#include <fmt/format.h>

namespace fasa {

std::string KernelCosts::text() const {
  return fmt::format(
      "launch {:.1f} us, select {:.1f} us + {:.1f} ns a token, resolve {:.1f} us + {:.2f} ns a hot "
      "row, attend {:.1f} us",
      launch * 1e6, select * 1e6, ranked_token * 1e9, resolve * 1e6, hot_slot * 1e9, attend * 1e6);
}

}  // namespace fasa
