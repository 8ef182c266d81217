// Log lines for people, on standard error.
#pragma once

#include <string_view>

namespace fasa {

void log_notice(std::string_view message);
void log_warning(std::string_view message);

}  // namespace fasa
