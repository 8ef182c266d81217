// The HTML page of an analysis: for each part an explanation, a picture and its numbers.
#include <fmt/format.h>

#include "runtime/config/config_options.h"
#include "tools/analyze_charts.h"
#include "tools/analyze_report.h"
#include "tools/html_page.h"

namespace fasa {
namespace {

std::string cells(const std::vector<std::string>& values, const char* tag = "td") {
  std::string text = "<tr>";
  for (const std::string& value : values) {
    text += fmt::format("<{0}>{1}</{0}>", tag, html_escaped(value));
  }
  return text + "</tr>\n";
}

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

std::string compound_table(const CompoundTable& table) {
  std::vector<std::string> head = {"tokens chosen by, %"};
  for (const int64_t k : table.windows) head.push_back(fmt::format("K = {}", k));
  std::string text = "<table>" + cells(head, "th");
  for (size_t row = 0; row < table.rows.size(); ++row) {
    std::vector<std::string> line = {table.rows[row]};
    for (const double share : table.share[row]) line.push_back(share < 0 ? "-" : percent(share));
    text += cells(line);
  }
  return text + "</table>\n";
}

std::string overlap_table(const Analysis& analysis) {
  std::vector<std::string> head = {"FCs in common, %"};
  for (const AnalysisText& text : analysis.texts) head.push_back(text.name);
  std::string text = "<table>" + cells(head, "th");
  for (size_t i = 0; i < analysis.texts.size(); ++i) {
    std::vector<std::string> line = {analysis.texts[i].name};
    for (const double share : analysis.text_overlap[i]) line.push_back(percent(share));
    text += cells(line);
  }
  return text + "</table>\n";
}

std::string selections_table(const Analysis& analysis) {
  std::string text =
      "<details><summary>Numbers</summary><table>" +
      cells({"selection", "tokens", "text: attention, %", "text: distant attention, %",
             "repeats: attention, %", "repeats: distant attention, %"},
            "th");
  for (const SelectionAttention& one : analysis.selections) {
    text += cells({one.method, fmt::to_string(one.budget), percent(one.text.attention_share()),
                   percent(one.text.distant_share()), percent(one.probes.attention_share()),
                   percent(one.probes.distant_share())});
  }
  return text + "</table></details>\n";
}

std::string slices_table(const Analysis& analysis) {
  std::string text =
      "<details><summary>Numbers</summary><table>" +
      cells({"slice", "FCs", "bytes a token", "text: kept, %", "repeats: kept, %"}, "th");
  for (const SliceChoiceAttention& one : analysis.slices) {
    text += cells({std::string(slice_dtype_name(one.dtype)), fmt::to_string(one.chunks),
                   fmt::format("{:.1f}", one.bytes), percent(one.kept(0)), percent(one.kept(1))});
  }
  return text + "</table></details>\n";
}

std::string agreement_part(const AnalyzeReport& report) {
  const Analysis& analysis = report.analysis;
  return fmt::format(
             "<h2>Contextual agreement of single frequency chunks</h2>\n<p>CA: the share of a "
             "head's {} best-scored tokens that are also among the {} best by one frequency chunk "
             "(FC) alone. Mean over queries and texts. {} % of all FCs are above 0.4, {} % below "
             "0.15.</p>\n",
             report.options.window, report.options.window,
             percent(analysis.share_of_chunks([](double ca) { return ca > 0.4; })),
             percent(analysis.share_of_chunks([](double ca) { return ca < 0.15; }))) +
         agreement_heatmaps_svg(analysis) +
         "<h3>How many FCs have at most a given CA, layer by layer</h3>\n" +
         agreement_cdf_svg(analysis);
}

std::string compound_part(const AnalyzeReport& report) {
  const CompoundTable& table = report.analysis.compound;
  return "<h2>Compound agreement</h2>\n<p>How many of the head's own K best tokens are among the K "
         "best by the summed scores of a few FCs, compared with other ways to choose K tokens. FCs "
         "are ranked on the even queries and measured on the odd ones.</p>\n" +
         compound_table(table) + compound_svg(table) +
         fmt::format(
             "<h2>Which of the best tokens one FC finds</h2>\n<p>A head's {} best tokens, divided "
             "into fifths by rank, and how many of each fifth are among the {} best by one "
             "FC.</p>\n",
             report.options.window, report.options.window) +
         fifths_svg(report.analysis.fifths);
}

std::string maps_part(const Analysis& analysis) {
  return "<h2>Do maps depend on the text, or on the number of queries?</h2>\n<p>Compares the best "
         "quarter of every KV head's FCs, by mean CA.</p>\n" +
         overlap_table(analysis) + size_overlap_svg(analysis.size_overlap);
}

std::string selections_part(const AnalyzeReport& report) {
  const Analysis& analysis = report.analysis;
  if (analysis.selections.empty()) return "";
  return fmt::format(
             "<h2>Attention that selections capture</h2>\n<p>{}, decoded through the runtime with "
             "each selection. Distant tokens are those outside the first 4 and the newest 16. "
             "First for queries on the last {} tokens of the text, then for queries at repeats of "
             "planted strings, which attend far back.</p>\n<h3>Queries on text</h3>\n",
             html_escaped(analysis.texts.back().name), report.text_steps) +
         selections_svg(analysis.selections, &SelectionAttention::text) +
         "<h3>Queries at repeats</h3>\n" +
         selections_svg(analysis.selections, &SelectionAttention::probes) +
         selections_table(analysis);
}

std::string slices_part(const AnalyzeReport& report) {
  return fmt::format(
             "<h2>Bits and frequency chunks at equal bytes</h2>\n<p>Share of the distant attention "
             "captured by the true scores that a selection of {} tokens by slice scores keeps. FCs "
             "are ranked on the even queries, by the distant attention that they "
             "add.</p>\n<h3>Queries on text</h3>\n",
             report.options.slice_window) +
         slices_svg(report.analysis.slices, 0) + "<h3>Queries at repeats</h3>\n" +
         slices_svg(report.analysis.slices, 1) + slices_table(report.analysis);
}

}  // namespace

std::string to_html(const AnalyzeReport& report) {
  std::string text = html_begin("fasa analyze");
  text += fmt::format("<h1>{}</h1>\n<p>", html_escaped(report.model));
  for (const AnalysisText& one : report.analysis.texts) {
    text += fmt::format(
        "{}: {} tokens, {} queries on the text, {} at repeats of planted "
        "strings.<br>\n",
        html_escaped(one.name), one.data.ids.size(), one.anchors.size(), one.probes.size());
  }
  text += "</p>\n" + agreement_part(report) + compound_part(report) + maps_part(report.analysis) +
          selections_part(report) + slices_part(report);
  text += fmt::format("<details><summary>Config</summary><pre>{}</pre></details>\n",
                      html_escaped(config_to_json(report.config).dump(2)));
  return text + html_end();
}

}  // namespace fasa
