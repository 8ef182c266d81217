// The instruction sets that oneDNN may use.
#pragma once

#include <string>

namespace fasa {

// Call before the first oneDNN primitive: limits oneDNN to lower sets where AMX is announced and
// traps (kernels/amx.h). Once per process; thread-safe. A set ONEDNN_MAX_CPU_ISA takes precedence.
void prepare_onednn();

// The instruction set in use, as text: "avx512_core_bf16", with a note if AMX does not work.
std::string onednn_isa_note();

}  // namespace fasa
