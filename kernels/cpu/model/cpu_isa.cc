#include "kernels/cpu/model/cpu_isa.h"

#include <cstdlib>
#include <dnnl.hpp>
#include <mutex>

#include "kernels/amx.h"

namespace fasa {

void prepare_onednn() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) return;
    if (cpu::amx() == cpu::Amx::kBroken) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
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
  if (cpu::amx() == cpu::Amx::kBroken) note += " (the processor reports AMX, but it does not work)";
  return note;
}

}  // namespace fasa
