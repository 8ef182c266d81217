// The instruction sets that oneDNN may use.
#pragma once

#include <string>

namespace fasa {

// Call before the first oneDNN primitive. Some virtual machines announce AMX and then trap on its
// instructions, which kills oneDNN. If AMX is announced, a child process tries it, and oneDNN is
// limited to lower sets if that fails. Once per process; thread-safe. A set ONEDNN_MAX_CPU_ISA
// takes precedence.
void prepare_onednn();

// The instruction set in use, as text: "avx512_core_bf16", with a note if AMX does not work.
std::string onednn_isa_note();

}  // namespace fasa
