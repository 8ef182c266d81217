// Renders templates from standard input, one JSON object a line: {"template": TEXT, "context": TEXT
// of JSON, "now": DATE}. Writes one a line: {"text": TEXT, "runs": [[end, user], ...]} or
// {"error": TEXT}. template_oracle_test.py compares it with Jinja2.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/text/template/template.h"

namespace fasa::jinja {
namespace {

nlohmann::json answer(const nlohmann::json& line) {
  try {
    const Template chat = Template::parse(line["template"].get<std::string>(), "template");
    Context context = parse_context(line["context"].get<std::string>(), "context");
    context.now = parse_time(line.value("now", "2026-11-22"), "now");
    const MarkedText text = chat.render(context);
    nlohmann::json runs = nlohmann::json::array();
    for (const MarkedText::Run& run : text.runs()) {
      runs.push_back({run.end, run.origin == Origin::kUser});
    }
    return {{"text", text.bytes()}, {"runs", runs}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace
}  // namespace fasa::jinja

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << fasa::jinja::answer(nlohmann::json::parse(line)).dump(-1, ' ', true) << '\n';
  }
}
