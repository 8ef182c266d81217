#include "offload/host/pinning.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "runtime/base/units.h"

namespace fasa {

std::vector<PinnedPiece> pinned_pieces(size_t bytes, size_t most) {
  std::vector<PinnedPiece> pieces;
  for (size_t at = 0; at < bytes; at += most) pieces.push_back({at, std::min(most, bytes - at)});
  return pieces;
}

PinningLimits pinning_limits() {
  PinningLimits limits;
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY) {
    limits.locked_bytes = locked.rlim_cur;
  }
  limits.container = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0;
  std::ifstream file("/proc/version");
  const std::string version{std::istreambuf_iterator<char>(file), {}};
  limits.wsl = version.find("icrosoft") != std::string::npos;
  return limits;
}

std::string pinning_advice(const PinningLimits& limits, uint64_t pinned_bytes,
                           uint64_t asked_bytes) {
  if (limits.wsl) {
    return "WSL can pin only a part of the memory that Windows assigns to it: raise 'memory' in "
           ".wslconfig, or lower --host-memory";
  }
  const bool passes =
      asked_bytes > limits.locked_bytes || pinned_bytes > limits.locked_bytes - asked_bytes;
  if (passes) {
    return fmt::format("the limit of locked memory is {}: {}", format_bytes(limits.locked_bytes),
                       limits.container ? "start the container with --ulimit memlock=-1"
                                        : "raise it with ulimit -l, or memlock in "
                                          "/etc/security/limits.conf");
  }
  if (limits.container) {
    return "the container may have reached its memory limit: start it with a larger --memory, or "
           "lower --host-memory";
  }
  return "the system has too little free memory that it can lock: close other programs, or lower "
         "--host-memory";
}

}  // namespace fasa
