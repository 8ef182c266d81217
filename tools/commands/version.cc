#include "tools/commands/version.h"

#include <fmt/format.h>

#include "runtime/io/machine.h"
#include "tools/commit.h"  // made by the build

namespace fasa {

std::string version_line() {
  return fmt::format("fasa {} (commit {}, kernels for {}, {})", FASA_VERSION, kCommit,
                     kernel_target(), FASA_CUDA_KERNELS);
}

}  // namespace fasa
