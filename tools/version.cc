#include "tools/version.h"

#include <fmt/format.h>

#include "commit.h"  // made by the build
#include "kernels/target.h"

namespace fasa {

std::string version_line() {
  return fmt::format("fasa {} (commit {}, kernels for {}, {})", FASA_VERSION, kCommit,
                     cpu::target_name(cpu::active_target()), FASA_CUDA_KERNELS);
}

}  // namespace fasa
