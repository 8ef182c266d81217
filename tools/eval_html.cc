// The HTML page of an evaluation: the results, and where in the text the recalled facts were.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "runtime/config/config_options.h"
#include "tools/eval_report.h"
#include "tools/html_page.h"
#include "tools/svg.h"

namespace fasa {
namespace {

struct Answers {
  int64_t right = 0, asked = 0;
  double share() const { return static_cast<double>(right) / static_cast<double>(asked); }
};

// [depth][length in tokens]
using Grid = std::map<double, std::map<int64_t, Answers>>;

Grid grid_of(const MethodReport& report) {
  Grid grid;
  for (const TaskResult& task : report.tasks) {
    const auto length = task.setup.at("task_setup").at("context").get<int64_t>();
    for (const auto& record : task.records) {
      for (const auto& question : record.at("questions")) {
        Answers& answers = grid[question.at("depth").get<double>()][length];
        answers.right += question.at("right").get<bool>() ? 1 : 0;
        ++answers.asked;
      }
    }
  }
  return grid;
}

// From red over pale yellow to blue: distinguishable for colour-blind readers.
std::string share_colour(double share) {
  constexpr double kLow[] = {215, 48, 39}, kMiddle[] = {255, 243, 191}, kHigh[] = {69, 117, 180};
  std::string colour = "#";
  for (int i = 0; i < 3; ++i) {
    const double value = share < 0.5 ? kLow[i] + (kMiddle[i] - kLow[i]) * share * 2
                                     : kMiddle[i] + (kHigh[i] - kMiddle[i]) * (share - 0.5) * 2;
    colour += fmt::format("{:02x}", static_cast<int>(std::lround(value)));
  }
  return colour;
}

std::string grid_svg(const Grid& grid) {
  constexpr double kCellHeight = 30, kTop = 44;
  std::set<int64_t> lengths;
  for (const auto& [depth, row] : grid) {
    for (const auto& [length, answers] : row) lengths.insert(length);
  }
  const double width = std::min(150.0, kSvgPlot / static_cast<double>(lengths.size()));
  std::string text = svg_begin(kTop + kCellHeight * static_cast<double>(grid.size()) + 8);
  text += text_at(kSvgLeft, 14, "context, tokens");
  text += text_at(kSvgLeft - 8, kTop - 8, "depth", "end");
  double x = kSvgLeft;
  for (const int64_t length : lengths) {
    text += text_at(x + width / 2, kTop - 8, fmt::to_string(length), "middle");
    x += width;
  }
  double y = kTop;
  for (const auto& [depth, row] : grid) {
    text += text_at(kSvgLeft - 8, y + 19, fmt::format("{:.3g} %", 100 * depth), "end");
    x = kSvgLeft;
    for (const int64_t length : lengths) {
      if (const auto found = row.find(length); found != row.end()) {
        const Answers& answers = found->second;
        const std::string colour = share_colour(answers.share());
        text += rect_at(x, y, width - 2, kCellHeight - 2, colour.c_str(),
                        fmt::format("{} tokens, {:.3g} % deep: {} of {} right", length, 100 * depth,
                                    answers.right, answers.asked));
        text +=
            text_at(x + width / 2 - 1, y + 19,
                    fmt::format("{:.0f} % of {}", 100 * answers.share(), answers.asked), "middle");
      }
      x += width;
    }
    y += kCellHeight;
  }
  return text + svg_end();
}

std::string results_section(const MethodReport& report) {
  std::string text = "<table><tr><th>task</th><th>result</th><th>95 %</th><th>examples</th></tr>\n";
  for (const TaskResult& task : report.tasks) {
    const Summary& summary = task.summary;
    const double scale = summary.metric == Metric::kAccuracy ? 100 : 1;
    text += fmt::format(
        "<tr><td>{}</td><td>{} {:.4g}{}</td><td>{:.4g} to {:.4g}</td><td>{}</td></tr>\n",
        html_escaped(task.task), metric_name(summary.metric), summary.value * scale,
        summary.metric == Metric::kAccuracy ? " %" : "", summary.interval.low * scale,
        summary.interval.high * scale, summary.examples);
  }
  text += "</table>\n";
  for (const TaskResult& task : report.tasks) {
    if (!task.against_full) continue;
    text += fmt::format("<p>{}: {}</p>\n", html_escaped(task.task),
                        html_escaped(against_full_text(*task.against_full)));
  }
  return text;
}

std::string method_section(const MethodReport& report, const std::string& task) {
  std::string text = results_section(report);
  if (task == "needle") {
    text += "<h3>Facts recalled, by position in the text</h3>\n" + grid_svg(grid_of(report));
  }
  return text + fmt::format("<details><summary>Config</summary><pre>{}</pre></details>\n",
                            html_escaped(config_to_json(report.config).dump(2)));
}

}  // namespace

std::string to_html(const EvalReport& report) {
  std::string text = html_begin("fasa eval");
  text += fmt::format("<h1>{}: {}</h1>\n", html_escaped(report.task), html_escaped(report.model));
  for (const std::string& note : report.notes) {
    text += fmt::format("<p class=\"note\">{}</p>\n", html_escaped(note));
  }
  for (const MethodReport& method : report.methods) {
    text += fmt::format("<h2>{}</h2>\n", html_escaped(method.method));
    text += method_section(method, report.task);
  }
  return text + html_end();
}

}  // namespace fasa
