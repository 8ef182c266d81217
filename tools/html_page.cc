#include "tools/html_page.h"

namespace fasa {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>)";
constexpr std::string_view kStyles = R"(</title>
<style>
body{font:14px/1.45 system-ui,sans-serif;color:#1c2733;background:#fff;margin:24px auto;
max-width:1180px;padding:0 16px}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 6px})"
                                     R"(h3{font-size:14px;margin:16px 0 4px}
p{margin:4px 0}table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:6px 0}
td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #e3e8ee}
td:first-child,th:first-child{text-align:left}
.wide{overflow-x:auto}svg{display:block;font:11px system-ui,sans-serif}
.key{display:inline-block;margin-right:14px}.key i{display:inline-block;width:12px;height:12px;
margin-right:5px;vertical-align:-2px;border-radius:2px}
pre{background:#f5f7f9;padding:10px;overflow-x:auto;font-size:12px}.note{color:#6b4b00}
</style></head><body>
)";

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string html_begin(std::string_view title) {
  return std::string(kHead) + html_escaped(title) + std::string(kStyles);
}

std::string html_end() { return "</body></html>\n"; }

}  // namespace fasa
