// The steps of a selection trace as one Zstandard frame (docs/trace-format.md): each head's tokens
// are coded by what changed since the last step.
#pragma once

#include <string>
#include <string_view>

#include "runtime/trace/selection_trace.h"

namespace fasa {

std::string encode_steps(const SelectionTrace& trace);
// Adds `steps` steps. Throws InputError; `name` names the file.
void decode_steps(std::string_view frame, int steps, const std::string& name,
                  SelectionTrace& trace);

}  // namespace fasa
