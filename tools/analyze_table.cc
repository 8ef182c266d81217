#include <fmt/format.h>

#include "tools/analyze_report.h"

namespace fasa {
namespace {

std::string compound_table(const CompoundTable& table) {
  std::string text = fmt::format("{:<22}", "agreement, %, K =");
  for (const int64_t k : table.windows) text += fmt::format("{:>8}", k);
  text += '\n';
  for (size_t row = 0; row < table.rows.size(); ++row) {
    text += fmt::format("{:<22}", table.rows[row]);
    for (const double share : table.share[row]) {
      text += share < 0 ? fmt::format("{:>8}", "-") : fmt::format("{:>8.1f}", 100 * share);
    }
    text += '\n';
  }
  return text;
}

std::string selections_table(const std::vector<SelectionAttention>& selections) {
  std::string text =
      fmt::format("{:<22}{:>8}{:>10}{:>15}{:>10}{:>18}{:>12}\n", "captured, %", "tokens", "text",
                  "text, distant", "repeats", "repeats, distant", "least head");
  for (const SelectionAttention& one : selections) {
    double least = 1;
    for (const auto& heads : one.heads) {
      for (const CapturedAttention& head : heads) least = std::min(least, head.attention_share());
    }
    text += fmt::format("{:<22}{:>8}{:>10.1f}{:>15.1f}{:>10.1f}{:>18.1f}{:>12.1f}\n", one.method,
                        one.budget, 100 * one.text.attention_share(),
                        100 * one.text.distant_share(), 100 * one.probes.attention_share(),
                        100 * one.probes.distant_share(), 100 * least);
  }
  return text;
}

}  // namespace

std::string to_table(const AnalyzeReport& report) {
  const Analysis& analysis = report.analysis;
  std::string text = fmt::format("{}, {} texts\n", report.model, analysis.texts.size());
  text += fmt::format("FCs with a mean CA over 0.4: {:.1f} %, under 0.15: {:.1f} %\n\n",
                      100 * analysis.share_of_chunks([](double ca) { return ca > 0.4; }),
                      100 * analysis.share_of_chunks([](double ca) { return ca < 0.15; }));
  text += compound_table(analysis.compound);
  if (!analysis.selections.empty()) {
    text += '\n';
    text += selections_table(analysis.selections);
  }
  text += fmt::format("\n{:<8}{:>6}{:>16}{:>14}{:>14}\n", "slice", "FCs", "bytes a token",
                      "text, kept %", "repeats, %");
  for (const SliceChoiceAttention& one : analysis.slices) {
    text += fmt::format("{:<8}{:>6}{:>16.1f}{:>14.1f}{:>14.1f}\n", slice_dtype_name(one.dtype),
                        one.chunks, one.bytes, 100 * one.kept(0), 100 * one.kept(1));
  }
  return text;
}

}  // namespace fasa
