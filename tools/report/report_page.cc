#include "tools/report/report_page.h"

#include "tools/report/report_template.h"

namespace fasa {

std::string report_page(std::string_view kind, nlohmann::json report) {
  report["report"] = kind;
  std::string page(kReportBefore);
  // A name with "</script>" may not end the element.
  for (const char c : report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    if (c == '<') {
      page += "\\u003c";
    } else {
      page += c;
    }
  }
  return page += kReportAfter;
}

}  // namespace fasa
