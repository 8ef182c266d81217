#include "kernels/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#endif

namespace fasa::cpu {

#if defined(__x86_64__)
namespace {

bool is_announced() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22;
  constexpr unsigned kTile = 1u << 24;
  return (d & kBf16) != 0 && (d & kTile) != 0;
}

bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Runs in a child of a possibly multithreaded process: system calls and plain instructions only.
// Multiplies a tile of ones by a tile of ones: every sum is 32.
[[noreturn]] void try_tiles() {
  signal(SIGILL, SIG_DFL);
  signal(SIGSEGV, SIG_DFL);
  if (!may_use_tiles()) _exit(1);
  alignas(64) uint16_t ones[16 * 32];
  alignas(64) float sums[16 * 16];
  for (uint16_t& one : ones) one = 0x3f80;
  for (float& sum : sums) sum = 0;
  const long stride = 64;
  asm volatile(
      "ldtilecfg (%0)\n\t"
      "tilezero %%tmm0\n\t"
      "tileloadd (%1,%3,1), %%tmm1\n\t"
      "tileloadd (%1,%3,1), %%tmm2\n\t"
      "tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n\t"
      "tilestored %%tmm0, (%2,%3,1)\n\t"
      "tilerelease\n\t"
      :
      : "r"(&kWholeTiles), "r"(ones), "r"(sums), "r"(stride)
      : "memory");
  for (const float sum : sums) {
    if (sum != 32.0f) _exit(1);
  }
  _exit(0);
}

Amx probe() {
  if (!is_announced()) return Amx::kAbsent;
  const pid_t child = fork();
  if (child == 0) try_tiles();
  if (child < 0) return Amx::kBroken;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return Amx::kBroken;
  }
  const bool works = WIFEXITED(status) && WEXITSTATUS(status) == 0 && may_use_tiles();
  return works ? Amx::kWorks : Amx::kBroken;
}

}  // namespace

Amx amx() {
  static const Amx result = probe();
  return result;
}

#else

Amx amx() { return Amx::kAbsent; }

#endif

}  // namespace fasa::cpu
