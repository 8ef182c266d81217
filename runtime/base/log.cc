#include "runtime/base/log.h"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_set>

namespace fasa {

void log_notice(std::string_view message) { fmt::print(stderr, "fasa: {}\n", message); }
void log_warning(std::string_view message) { fmt::print(stderr, "fasa: warning: {}\n", message); }

void log_warning_once(std::string_view message) {
  constexpr size_t kMaxRemembered = 1024;  // then no more is logged
  static std::mutex mutex;
  static std::unordered_set<std::string> logged;
  {
    const std::lock_guard lock(mutex);
    if (logged.size() == kMaxRemembered || !logged.emplace(message).second) return;
  }
  log_warning(message);
}

}  // namespace fasa
