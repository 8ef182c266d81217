// The page of reports without its data, made of tools/report when fasa is built.
#pragma once

#include <string_view>

namespace fasa {

extern const std::string_view kReportBefore;
extern const std::string_view kReportAfter;

}  // namespace fasa
