#include "runtime/base/log.h"

#include <fmt/format.h>

#include <cstdio>

namespace fasa {

void log_notice(std::string_view message) { fmt::print(stderr, "fasa: {}\n", message); }
void log_warning(std::string_view message) { fmt::print(stderr, "fasa: warning: {}\n", message); }

}  // namespace fasa
