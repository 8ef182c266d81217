#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "runtime/base/units.h"
#include "runtime/profile/verdict.h"
#include "tools/flags/help_text.h"
#include "tools/report/profile_report.h"
#include "tools/report/text_table.h"

namespace fasa {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string bytes_of(double bytes) {
  return format_bytes(static_cast<uint64_t>(std::llround(std::max(0.0, bytes))));
}

// Why nothing was fetched ahead, where the config says so.
std::string why_none(const Config& config) {
  if (config.prefetch.depth == 0) return " (prefetch.depth = 0)";
  if (config.prefetch.predictor == PredictorKind::kNone) return " (prefetch.predictor = \"none\")";
  if (!config.prefetch.depth) return " (depth auto: it makes no step shorter)";
  return fmt::format(" (depth {}: what was predicted was on the device already)",
                     *config.prefetch.depth);
}

class ProfileTable {
 public:
  explicit ProfileTable(const ProfileRun& run)
      : run_(run),
        profile_(run.profile()),
        total_(profile_.total()),
        steps_(static_cast<double>(std::max<size_t>(1, profile_.steps()))) {}

  std::string totals() const {
    std::string text;
    const auto row = [&](std::string_view name, const std::string& value) {
      text += fmt::format("{:<26}{}\n", name, value);
    };
    row("time per output token",
        fmt::format("{:.3f} ms ({})", ms(profile_.seconds()),
                    run_.decode->device().virtual_clock() ? "virtual clock" : "wall time"));
    row("  computing", fmt::format("{:.3f} ms", ms(total_.compute)));
    row("  waiting for rows", fmt::format("{:.3f} ms", ms(total_.wait(WaitReason::kRows))));
    row("  waiting for others", other_waits());
    row("  nothing to do", fmt::format("{:.3f} ms", ms(profile_.idle())));
    row("transfer of rows used",
        fmt::format("{:.3f} ms, {} of it hidden", ms(profile_.total_transfer()),
                    percent(profile_.total_hidden())));
    row("rows moved while", behind());
    row("head groups", fmt::format("{:.1f} a layer", profile_.head_groups()));
    row("fetched on demand", fmt::format("{} a step", bytes(total_.miss.bytes)));
    row("fetched ahead", fmt::format("{} a step, {} of it unused", bytes(total_.prefetch.bytes),
                                     bytes(profile_.total_wasted_bytes())));
    row("written back", fmt::format("{} a step", bytes(total_.write_back_bytes)));
    row("hit rate", percent(total_.rows.hit_rate()));
    row("prefetch", prefetch());
    row("kept from step to step",
        knows_overlap(total_)
            ? percent(total_.overlap.share()) + " of the sets, without sinks and recent"
            : "-");
    return text;
  }

  // The compute stream by kind of work.
  std::string parts() const {
    const double bandwidth = run_.decode->device().traits().rates.memory_bandwidth;
    TextTable table({"compute", "ms", "%", "calls", "bytes", "% of the\nbandwidth"});
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [name, part] : profile_.parts()) order.emplace_back(part.seconds, name);
    std::sort(order.rbegin(), order.rend());
    for (const auto& [seconds, name] : order) {
      const PartProfile& part = profile_.parts().at(name);
      const double used = static_cast<double>(part.bytes) / bandwidth;
      table.add(
          {name, fmt::format("{:.3f}", ms(seconds)),
           fmt::format("{:.1f}", 100 * seconds / profile_.seconds()),
           fmt::format("{:.0f}", static_cast<double>(part.calls) / steps_),
           part.bytes > 0 ? bytes(part.bytes) : "-",
           part.bytes > 0 && seconds > 0 ? fmt::format("{:.0f}", 100 * used / seconds) : "-"});
    }
    return table.text();
  }

  std::string layers() const {
    TextTable table({"layer", "compute\nus", "wait for\nrows us", "other\nwaits us", "transfer\nus",
                     "hidden\n%", "hit\n%", "accuracy\n%", "coverage\n%", "missed\nbytes",
                     "scoring\n%", "ahead\nbytes", "kept\n%"});
    for (size_t i = 0; i < profile_.layers().size(); ++i) {
      table.add(layer_cells(fmt::to_string(i), profile_.layers()[i]));
    }
    if (profile_.outside().compute + profile_.outside().waiting() > 0) {
      table.add(layer_cells("none", profile_.outside()));
    }
    return table.text();
  }

 private:
  double ms(double seconds) const { return seconds * 1e3 / steps_; }
  double us(double seconds) const { return seconds * 1e6 / steps_; }
  std::string bytes(uint64_t amount) const {
    return bytes_of(static_cast<double>(amount) / steps_);
  }
  bool knows_overlap(const LayerProfile& part) const {
    return profile_.knows_overlap() && part.overlap.entries > 0;
  }
  std::string other_waits() const {
    std::string text =
        fmt::format("{:.3f} ms", ms(total_.waiting() - total_.wait(WaitReason::kRows)));
    std::string reasons;
    for (size_t i = 1; i < kWaitReasons; ++i) {
      if (total_.waits[i] <= 0) continue;
      reasons += fmt::format("{}{} {:.3f}", reasons.empty() ? "" : ", ",
                             wait_reason_name(static_cast<WaitReason>(i)), ms(total_.waits[i]));
    }
    return reasons.empty() ? text : text + ": " + reasons;
  }
  // What rows that moved over the link were hidden behind.
  std::string behind() const {
    double all = 0;
    for (const double seconds : profile_.behind()) all += seconds;
    if (all <= 0) return "-";
    std::string text;
    for (size_t i = 0; i < kBehinds; ++i) {
      const double share = profile_.behind()[i] / all;
      if (share < 0.0005) continue;
      const bool none = static_cast<Behind>(i) == Behind::kNothing;
      text +=
          fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ",
                      none ? "compute waits" : behind_name(static_cast<Behind>(i)), 100 * share);
    }
    return text;
  }
  std::string prefetch() const {
    if (total_.rows.prefetched == 0) return "none" + why_none(run_.config);
    return fmt::format("accuracy {}, coverage {}", percent(total_.rows.accuracy()),
                       percent(total_.rows.coverage()));
  }
  static std::string share(bool known, double value) {
    return known ? fmt::format("{:.1f}", 100 * value) : "-";
  }
  std::vector<std::string> layer_cells(const std::string& name, const LayerProfile& part) const {
    const auto number = [&](double seconds) { return fmt::format("{:.1f}", us(seconds)); };
    const bool predicted = part.rows.prefetched > 0;
    const bool looked = part.rows.protected_rows + part.rows.hits + part.rows.misses > 0;
    const bool moved = profile_.transfer(part) > 0;
    return {name,
            number(part.compute),
            number(part.wait(WaitReason::kRows)),
            number(part.waiting() - part.wait(WaitReason::kRows)),
            number(profile_.transfer(part)),
            share(moved, profile_.hidden(part)),
            share(looked, part.rows.hit_rate()),
            share(predicted, part.rows.accuracy()),
            share(predicted, part.rows.coverage()),
            short_bytes(part.miss.bytes),
            share(part.miss.bytes > 0, part.scoring_share()),
            short_bytes(part.prefetch.bytes),
            share(knows_overlap(part), part.overlap.share())};
  }
  std::string short_bytes(uint64_t amount) const {
    const double each = static_cast<double>(amount) / steps_;
    return each < 10e3 ? fmt::format("{:.0f}", each) : fmt::format("{:.0f}k", each / 1e3);
  }

  const ProfileRun& run_;
  const Profile& profile_;
  const LayerProfile total_;
  const double steps_;
};

std::string notes_of(const ProfileRun& run) {
  std::string text;
  for (const std::string& note : run.notes) text += paragraph("* " + note, 2);
  return text;
}

std::string head(const ProfileReport& report) {
  const ProfileRun& first = report.runs.front();
  std::string text = fmt::format("{}, {}, {} steps after {} to warm up\n", report.subject,
                                 context_of(report), first.profile().steps(), first.warmup.steps) +
                     machine_of(first) + '\n';
  if (report.compute == "modelled") {
    text += report.weight_bits == 0
                ? "attention only; kernel times are modelled\n"
                : fmt::format(
                      "weights with {} bits between attention calls; kernel times are modelled\n",
                      report.weight_bits);
  }
  if (!report.selections.empty()) text += "selections: " + report.selections + '\n';
  return text;
}

}  // namespace

std::string machine_of(const ProfileRun& run) {
  if (!run.decode->device().virtual_clock()) return run.decode->device().name();
  const DeviceOptions options = run.config.device_options();
  const std::string gpu = run.config.device.gpu;
  const bool assumed = !run.config.link.bandwidth;
  return fmt::format("emulated {}: memory {}, link {}{}, {} a transfer",
                     gpu.empty() ? "device" : gpu, format_rate(options.memory_bandwidth),
                     format_rate(options.link_bandwidth),
                     !assumed      ? ""
                     : gpu.empty() ? " (assumed)"
                                   : " (its own)",
                     format_seconds(options.link_latency));
}

std::string context_of(const ProfileReport& report) {
  std::string context = fmt::format("{} tokens", report.tokens);
  if (report.sequences > 1) context = fmt::format("{} sequences of {}", report.sequences, context);
  if (report.step_tokens > 1) context += fmt::format(", steps of {} tokens", report.step_tokens);
  return context;
}

namespace {

struct CompareRow {
  const char* name;
  std::function<double(const Profile&)> value;
  bool is_time = false;  // the comparison shows a ratio
};

// A prefetch that fetched nothing has no accuracy.
double percent_if_ahead(const Profile& profile, double share) {
  return profile.total().rows.prefetched > 0 ? 100 * share : std::nan("");
}

std::vector<CompareRow> compare_rows() {
  const auto per_step = [](const Profile& p, double amount) {
    return amount / static_cast<double>(std::max<size_t>(1, p.steps()));
  };
  return {
      {"time per output token, ms",
       [=](const Profile& p) { return 1e3 * per_step(p, p.seconds()); }, true},
      {"  computing", [=](const Profile& p) { return 1e3 * per_step(p, p.total().compute); }, true},
      {"  waiting for rows",
       [=](const Profile& p) { return 1e3 * per_step(p, p.total().wait(WaitReason::kRows)); },
       true},
      {"  waiting for others",
       [=](const Profile& p) {
         return 1e3 * per_step(p, p.total().waiting() - p.total().wait(WaitReason::kRows));
       },
       true},
      {"transfer of rows used, ms",
       [=](const Profile& p) { return 1e3 * per_step(p, p.total_transfer()); }, true},
      {"hidden, %", [](const Profile& p) { return 100 * p.total_hidden(); }},
      {"hit rate, %", [](const Profile& p) { return 100 * p.total().rows.hit_rate(); }},
      {"accuracy, %",
       [](const Profile& p) { return percent_if_ahead(p, p.total().rows.accuracy()); }},
      {"coverage, %",
       [](const Profile& p) { return percent_if_ahead(p, p.total().rows.coverage()); }},
      {"missed, MB",
       [=](const Profile& p) {
         return per_step(p, static_cast<double>(p.total().miss.bytes)) / 1e6;
       },
       true},
      {"  while scoring, %", [](const Profile& p) { return 100 * p.total().scoring_share(); }},
      {"fetched ahead, MB",
       [=](const Profile& p) {
         return per_step(p, static_cast<double>(p.total().prefetch.bytes)) / 1e6;
       },
       true},
      {"  unused, MB",
       [=](const Profile& p) {
         return per_step(p, static_cast<double>(p.total_wasted_bytes())) / 1e6;
       },
       true},
  };
}

// Shortens a path to its end if it is too long for a column.
std::string shortened(const std::string& name) {
  constexpr size_t kMax = 26;
  return name.size() <= kMax ? name : "..." + name.substr(name.size() - kMax + 3);
}

std::string compare_table(const ProfileReport& report) {
  const Profile& a = report.runs[0].profile();
  const Profile& b = report.runs[1].profile();
  const auto number = [](double value) {
    return std::isnan(value) ? std::string("-") : fmt::format("{:.3f}", value);
  };
  TextTable table({"", shortened(report.runs[0].name), shortened(report.runs[1].name), "ratio"});
  for (const CompareRow& row : compare_rows()) {
    const double left = row.value(a);
    const double right = row.value(b);
    const bool ratio = row.is_time && left > 0;
    table.add(
        {row.name, number(left), number(right), ratio ? fmt::format("{:.3f}", right / left) : "-"});
  }
  const ProfileRatio ratio = ratio_of(a, b);
  return table.text() + fmt::format("\nsteps alternate; ratio of single pairs: {:.3f} to {:.3f}\n",
                                    ratio.low, ratio.high);
}

}  // namespace

std::string to_table(const ProfileReport& report) {
  std::string text;
  for (const ProfileRun& run : report.runs) {
    const std::string name = run.name.empty() ? "" : shortened(run.name) + ": ";
    text += paragraph(name + verdict(run.profile(), run.costs()), 0);
  }
  if (!report.advice.text.empty()) text += paragraph(report.advice.text, 0);
  text += '\n' + head(report) + '\n';
  if (report.runs.size() > 1) {
    text += compare_table(report);
    for (const ProfileRun& run : report.runs) {
      if (!run.notes.empty()) text += '\n' + paragraph(run.name + ":", 0) + notes_of(run);
    }
    return text;
  }
  const ProfileTable table(report.runs.front());
  text += table.totals() + '\n' + table.parts() + '\n' + table.layers();
  const std::string notes = notes_of(report.runs.front());
  return notes.empty() ? text : text + '\n' + notes;
}

}  // namespace fasa
