// The flag --pre of commands that tokenize.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace fasa {

void add_pre_flag(CLI::App& command, std::string& pre);

}  // namespace fasa
