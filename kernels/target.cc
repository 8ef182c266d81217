#include "kernels/target.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "kernels/amx.h"
#include "runtime/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fasa::cpu {
namespace {

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports knows it.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

std::vector<Target> detect_targets() {
  std::vector<Target> targets = {Target::kPortable};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) {
    return targets;
  }
  targets.push_back(Target::kAvx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return targets;
  }
  targets.push_back(Target::kAvx512);
  if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("avx512bf16") ||
      !__builtin_cpu_supports("avx512vbmi")) {
    return targets;
  }
  targets.push_back(Target::kAvx512Vnni);
  if (amx() == Amx::kWorks) targets.push_back(Target::kAvx512Amx);
#endif
  return targets;
}

}  // namespace

std::string_view target_name(Target target) {
  constexpr std::string_view kNames[] = {"portable", "avx2", "avx512", "avx512_vnni", "avx512_amx"};
  return kNames[static_cast<int>(target)];
}

const std::vector<Target>& supported_targets() {
  static const std::vector<Target> targets = detect_targets();
  return targets;
}

Target choose_target(const char* name) {
  const std::vector<Target>& targets = supported_targets();
  if (name == nullptr || *name == '\0') return targets.back();
  std::string names;
  for (const Target target : targets) {
    if (target_name(target) == name) return target;
    names.append(names.empty() ? "" : ", ").append(target_name(target));
  }
  throw UsageError(fmt::format(
      "FASA_TARGET = '{}': unknown, or not supported by this processor; allowed: {}", name, names));
}

Target active_target() {
  static const Target target = choose_target(std::getenv("FASA_TARGET"));
  return target;
}

}  // namespace fasa::cpu
