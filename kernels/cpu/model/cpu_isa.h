// Which instructions oneDNN may use.
#pragma once

#include <string>

namespace fasa {

// Call before the first oneDNN primitive. Some virtual machines announce AMX and then trap on its
// instructions (oneDNN dies of an illegal instruction): where AMX is announced, a child process
// tries it, and oneDNN is kept below it unless that went well. Once a process; any thread.
// ONEDNN_MAX_CPU_ISA, where set, is left in charge.
void prepare_onednn();

// What oneDNN uses, for people: "avx512_core_bf16 (AMX is announced but does not work)".
std::string onednn_isa_note();

}  // namespace fasa
