// Log lines for people, on standard error.
#pragma once

#include <string_view>

namespace fasa {

void log_notice(std::string_view message);
void log_warning(std::string_view message);
// Logs a message the first time only: several readers of one file find the same fault.
void log_warning_once(std::string_view message);

}  // namespace fasa
