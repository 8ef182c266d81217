#include "kernels/cpu/model/cpu_isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <dnnl.hpp>
#include <mutex>

namespace fasa {
namespace {

enum class Amx { kAbsent, kWorks, kBroken };

bool amx_announced() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22;
  constexpr unsigned kTile = 1u << 24;
  return (d & kBf16) != 0 && (d & kTile) != 0;
}

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Runs in a child of a possibly multithreaded process: system calls and plain instructions only.
// Multiplies a tile of ones by a tile of ones: every sum is 32.
[[noreturn]] void try_amx() {
  signal(SIGILL, SIG_DFL);
  signal(SIGSEGV, SIG_DFL);
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) _exit(1);
  TileConfig config;
  for (int tile = 0; tile < 3; ++tile) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = 16;
  }
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
      : "r"(&config), "r"(ones), "r"(sums), "r"(stride)
      : "memory");
  for (const float sum : sums) {
    if (sum != 32.0f) _exit(1);
  }
  _exit(0);
}

Amx probe_amx() {
  if (!amx_announced()) return Amx::kAbsent;
  const pid_t child = fork();
  if (child == 0) try_amx();
  if (child < 0) return Amx::kBroken;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return Amx::kBroken;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Amx::kWorks : Amx::kBroken;
}

Amx probe_once() {
  static const Amx result = probe_amx();
  return result;
}

}  // namespace

void prepare_onednn() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) return;
    if (probe_once() == Amx::kBroken) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
  });
}

std::string onednn_isa_note() {
  prepare_onednn();
  std::string note;
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_amx:
      note = "amx";
      break;
    case dnnl::cpu_isa::avx512_core_bf16:
      note = "avx512_core_bf16";
      break;
    case dnnl::cpu_isa::avx512_core_vnni:
    case dnnl::cpu_isa::avx512_core:
      note = "avx512_core";
      break;
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      note = "avx2";
      break;
    default:
      note = "below avx2";
  }
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) return note + " (by ONEDNN_MAX_CPU_ISA)";
  if (probe_once() == Amx::kBroken) note += " (the processor reports AMX, but it does not work)";
  return note;
}

}  // namespace fasa
