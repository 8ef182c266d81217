#include "kernels/run_on_host.h"

#include <fmt/format.h>

#include "kernels/cpu/kernels.h"
#include "runtime/base/error.h"

namespace fasa {

KernelWork run_on_host(const KernelCall& call) {
  return std::visit(
      []<typename Params>(const Params& params) -> KernelWork {
        if constexpr (CacheCalls::kHas<Params>) {
          return cpu::run(params);
        } else {
          throw UsageError(
              fmt::format("kernel '{}' does not run on the host; use a device that supports it",
                          Params::kName));
        }
      },
      call);
}

}  // namespace fasa
