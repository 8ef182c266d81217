#include <fmt/format.h>

#include "tools/report/analyze_report.h"

namespace fasa {

std::string to_table(const AnalyzeReport& report) {
  const Analysis& analysis = report.analysis;
  std::string text = fmt::format("{}, {} texts\n", report.model, analysis.texts.size());
  text += fmt::format("FCs with a mean CA over 0.4: {:.1f} %, under 0.15: {:.1f} %\n",
                      100 * analysis.share_of_chunks([](double ca) { return ca > 0.4; }),
                      100 * analysis.share_of_chunks([](double ca) { return ca < 0.15; }));
  text += fmt::format("\n{:<24}{}\n", "FCs in common, %", "of the best quarter, with each text");
  for (size_t i = 0; i < analysis.texts.size(); ++i) {
    text += fmt::format("{:<24}", analysis.texts[i].name);
    for (const double share : analysis.text_overlap[i])
      text += fmt::format("{:>8.1f}", 100 * share);
    text += '\n';
  }
  return text;
}

}  // namespace fasa
