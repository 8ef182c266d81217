#include "tools/terminal/clock.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/text/template/context.h"

namespace fasa {

std::tm shown_time(const std::string& now) {
  if (!now.empty()) return jinja::parse_time(now, "--now");
  if (const char* epoch = std::getenv("SOURCE_DATE_EPOCH"); epoch != nullptr && *epoch != '\0') {
    const std::string_view text = epoch;
    constexpr int64_t kLast = 253'402'300'799;  // end of the year 9999
    int64_t seconds = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || seconds < 0 ||
        seconds > kLast) {
      throw UsageError(
          fmt::format("SOURCE_DATE_EPOCH = \"{}\": allowed: whole seconds since 1970", text));
    }
    return jinja::time_of_epoch(seconds);
  }
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

}  // namespace fasa
