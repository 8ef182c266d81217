// The current time for chat templates.
#pragma once

#include <ctime>
#include <string>

namespace fasa {

// The time of `now` (a date, or a date and time) if given, else of SOURCE_DATE_EPOCH in UTC, else
// the local time. Throws UsageError.
std::tm shown_time(const std::string& now);

}  // namespace fasa
