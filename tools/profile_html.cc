// The HTML report: one self-contained page with inline styles and SVG pictures.
#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "runtime/base/units.h"
#include "runtime/config/config_options.h"
#include "runtime/profile/verdict.h"
#include "tools/html_page.h"
#include "tools/profile_charts.h"
#include "tools/profile_report.h"

namespace fasa {
namespace {

std::string row(std::string_view name, const std::string& value) {
  return fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", name, value);
}

class RunSection {
 public:
  explicit RunSection(const ProfileRun& run)
      : run_(run),
        profile_(run.profile()),
        total_(profile_.total()),
        steps_(static_cast<double>(std::max<size_t>(1, profile_.steps()))) {}

  std::string html() const {
    std::string text;
    if (!run_.name.empty()) text += fmt::format("<h2>{}</h2>\n", html_escaped(run_.name));
    text += fmt::format("<p><b>{}</b></p>\n", html_escaped(verdict(profile_, run_.costs())));
    text += totals();
    for (const std::string& note : run_.notes) {
      text += fmt::format("<p class=\"note\">{}</p>\n", html_escaped(note));
    }
    const double end = step_end(*run_.decode);
    text += "<h3>The last step, by stream</h3>\n" + cause_key();
    text += streams_svg(*run_.decode, {0, end});
    const TimeSpan middle = middle_of_step(*run_.decode, 4);
    text += "<h3>Four layers of the last step</h3>\n" + streams_svg(*run_.decode, middle);
    text += "<h3>Hit rate, step by step</h3>\n" + hit_rate_svg(profile_);
    text += "<h3>Time of each layer</h3>\n" + bar_key() + layer_bars_svg(profile_);
    text += layers_table();
    text += fmt::format("<details><summary>Config</summary><pre>{}</pre></details>\n",
                        html_escaped(config_to_json(run_.config).dump(2)));
    return text;
  }

 private:
  double ms(double seconds) const { return seconds * 1e3 / steps_; }
  std::string bytes(double amount) const {
    return format_bytes(static_cast<uint64_t>(std::llround(amount / steps_)));
  }
  static std::string percent(bool known, double share) {
    return known ? fmt::format("<td>{:.1f}</td>", 100 * share) : "<td>-</td>";
  }

  std::string totals() const {
    std::string text = "<table>\n";
    text += row("time per output token", fmt::format("{:.3f} ms", ms(profile_.seconds())));
    text += row("computing", fmt::format("{:.3f} ms", ms(total_.compute)));
    for (size_t i = 0; i < kWaitReasons; ++i) {
      if (i > 0 && total_.waits[i] <= 0) continue;
      text += row(fmt::format("waiting for {}", wait_reason_name(static_cast<WaitReason>(i))),
                  fmt::format("{:.3f} ms", ms(total_.waits[i])));
    }
    text += row("transfer of rows used",
                fmt::format("{:.3f} ms, {:.1f} % hidden", ms(profile_.total_transfer()),
                            100 * profile_.total_hidden()));
    text += row("hit rate", fmt::format("{:.1f} %", 100 * total_.rows.hit_rate()));
    if (total_.rows.prefetched > 0) {
      text +=
          row("prefetch", fmt::format("accuracy {:.1f} %, coverage {:.1f} %",
                                      100 * total_.rows.accuracy(), 100 * total_.rows.coverage()));
    }
    text += row("fetched on demand", fmt::format("{} a step, {:.1f} % of it while scoring",
                                                 bytes(static_cast<double>(total_.miss.bytes)),
                                                 100 * total_.scoring_share()));
    text += row(
        "fetched ahead",
        fmt::format("{} a step, {} of it unused", bytes(static_cast<double>(total_.prefetch.bytes)),
                    bytes(static_cast<double>(profile_.total_wasted_bytes()))));
    text += row("written back",
                fmt::format("{} a step", bytes(static_cast<double>(total_.write_back_bytes))));
    if (profile_.knows_overlap() && total_.overlap.entries > 0) {
      text += row("kept from step to step", fmt::format("{:.1f} %", 100 * total_.overlap.share()));
    }
    return text + "</table>\n";
  }

  std::string layers_table() const {
    std::string text =
        "<details><summary>Numbers of each layer</summary><div class=\"wide\"><table>\n"
        "<tr><th>layer</th><th>compute us</th><th>wait for rows us</th><th>other waits us</th>"
        "<th>transfer us</th><th>hidden %</th><th>hit %</th><th>accuracy %</th><th>coverage %</th>"
        "<th>on demand</th><th>while scoring</th><th>ahead</th><th>not used</th>"
        "<th>kept %</th></tr>\n";
    for (size_t i = 0; i < profile_.layers().size(); ++i) {
      const LayerProfile& part = profile_.layers()[i];
      const double rows = part.wait(WaitReason::kRows);
      text += fmt::format("<tr><td>{}</td>", i);
      for (const double us : {part.compute, rows, part.waiting() - rows, profile_.transfer(part)}) {
        text += fmt::format("<td>{:.1f}</td>", 1e3 * ms(us));
      }
      const bool ahead = part.rows.prefetched > 0;
      text += percent(profile_.transfer(part) > 0, profile_.hidden(part)) +
              percent(true, part.rows.hit_rate()) + percent(ahead, part.rows.accuracy()) +
              percent(ahead, part.rows.coverage());
      for (const double amount :
           {static_cast<double>(part.miss.bytes), part.miss_while_scoring,
            static_cast<double>(part.prefetch.bytes), static_cast<double>(part.wasted_bytes())}) {
        text += fmt::format("<td>{}</td>", bytes(amount));
      }
      text += fmt::format("<td>{:.1f}</td></tr>\n", 100 * part.overlap.share());
    }
    return text + "</table></div></details>\n";
  }

  const ProfileRun& run_;
  const Profile& profile_;
  const LayerProfile total_;
  const double steps_;
};

}  // namespace

std::string to_html(const ProfileReport& report) {
  const ProfileRun& first = report.runs.front();
  std::string text = html_begin("fasa profile");
  text += fmt::format("<h1>{}, {}</h1>\n", html_escaped(report.subject), context_of(report));
  text += fmt::format("<p>{} steps after {} to warm up, on {}; {}{}</p>\n", first.profile().steps(),
                      first.warmup.steps, html_escaped(first.decode->device().name()),
                      first.decode->device().virtual_clock() ? "virtual clock" : "wall time",
                      report.compute == "modelled" ? ", kernel times are modelled" : "");
  text += fmt::format("<p>{}</p>\n", html_escaped(machine_of(first)));
  if (report.runs.size() > 1) {
    const ProfileRatio ratio = ratio_of(first.profile(), report.runs[1].profile());
    text += fmt::format(
        "<p>A step of {} takes {:.3f} times as long as one of {} ({:.3f} to {:.3f} in pairs of "
        "alternating steps).</p>\n",
        html_escaped(report.runs[1].name), ratio.ratio, html_escaped(first.name), ratio.low,
        ratio.high);
  }
  for (const ProfileRun& run : report.runs) text += RunSection(run).html();
  return text + html_end();
}

}  // namespace fasa
