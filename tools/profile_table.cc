#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "runtime/base/units.h"
#include "tools/profile_report.h"

namespace fasa {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string bytes_of(double bytes) {
  return format_bytes(static_cast<uint64_t>(std::llround(std::max(0.0, bytes))));
}

// Wraps text between words to lines of at most 100 columns.
std::string wrapped(const std::string& text, const std::string& indent) {
  constexpr size_t kColumns = 100;
  std::string result;
  std::string line = "* ";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (line.size() + word.size() > kColumns && line.size() > indent.size()) {
      result += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
      line = indent;
    }
    line += word + ' ';
    at = end + 1;
  }
  return result + line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
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
    row("fetched on demand",
        fmt::format("{} a step, {} of it while scoring", bytes(total_.miss.bytes),
                    percent(total_.scoring_share())));
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

  std::string layers() const {
    std::string text = fmt::format(
        "{:>5} {:>7} {:>7} {:>7} {:>8} {:>7} {:>6} {:>6} {:>6} {:>8} {:>7} {:>8} {:>6}\n", "layer",
        "compute", "rows", "others", "transfer", "hidden", "hit", "acc.", "cover.", "missed",
        "scoring", "ahead", "kept");
    text += fmt::format(
        "{:>5} {:>7} {:>7} {:>7} {:>8} {:>7} {:>6} {:>6} {:>6} {:>8} {:>7} {:>8} {:>6}\n", "", "us",
        "wait us", "wait us", "us", "%", "%", "%", "%", "bytes", "%", "bytes", "%");
    for (size_t i = 0; i < profile_.layers().size(); ++i) {
      text += layer_row(fmt::to_string(i), profile_.layers()[i]);
    }
    if (profile_.outside().compute + profile_.outside().waiting() > 0) {
      text += layer_row("none", profile_.outside());
    }
    return text;
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
  std::string prefetch() const {
    if (total_.rows.prefetched == 0) return "none";
    return fmt::format("accuracy {}, coverage {}", percent(total_.rows.accuracy()),
                       percent(total_.rows.coverage()));
  }
  static std::string share(bool known, double value) {
    return known ? fmt::format("{:.1f}", 100 * value) : "-";
  }
  std::string layer_row(const std::string& name, const LayerProfile& part) const {
    const bool predicted = part.rows.prefetched > 0;
    const bool looked = part.rows.protected_rows + part.rows.hits + part.rows.misses > 0;
    const bool moved = profile_.transfer(part) > 0;
    return fmt::format(
        "{:>5} {:>7.1f} {:>7.1f} {:>7.1f} {:>8.1f} {:>7} {:>6} {:>6} {:>6} {:>8} {:>7} {:>8} "
        "{:>6}\n",
        name, us(part.compute), us(part.wait(WaitReason::kRows)),
        us(part.waiting() - part.wait(WaitReason::kRows)), us(profile_.transfer(part)),
        share(moved, profile_.hidden(part)), share(looked, part.rows.hit_rate()),
        share(predicted, part.rows.accuracy()), share(predicted, part.rows.coverage()),
        short_bytes(part.miss.bytes), share(part.miss.bytes > 0, part.scoring_share()),
        short_bytes(part.prefetch.bytes), share(knows_overlap(part), part.overlap.share()));
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
  for (const std::string& note : run.notes) text += wrapped(note, "  ");
  return text;
}

std::string head(const ProfileReport& report) {
  const ProfileRun& first = report.runs.front();
  std::string text = fmt::format("{}, {}, {} steps after {} to warm up, on {}\n", report.subject,
                                 context_of(report), first.profile().steps(), report.warmup,
                                 first.decode->device().name());
  if (report.compute == "modelled") {
    text += report.weight_bits == 0
                ? "attention only; kernel times are modelled\n"
                : fmt::format(
                      "weights with {} bits between attention calls; kernel times are modelled\n",
                      report.weight_bits);
  }
  return text;
}

}  // namespace

std::string context_of(const ProfileReport& report) {
  const std::string tokens = fmt::format("{} tokens", report.tokens);
  return report.sequences == 1 ? tokens
                               : fmt::format("{} sequences of {}", report.sequences, tokens);
}

namespace {

struct CompareRow {
  const char* name;
  std::function<double(const Profile&)> value;
  bool is_time = false;  // the comparison shows a ratio
};

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
      {"accuracy, %", [](const Profile& p) { return 100 * p.total().rows.accuracy(); }},
      {"coverage, %", [](const Profile& p) { return 100 * p.total().rows.coverage(); }},
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
  std::string text =
      fmt::format("{:<28} {:>26} {:>26} {:>10}\n", "", shortened(report.runs[0].name),
                  shortened(report.runs[1].name), "ratio");
  for (const CompareRow& row : compare_rows()) {
    const double left = row.value(a);
    const double right = row.value(b);
    const bool ratio = row.is_time && left > 0;
    text += fmt::format("{:<28} {:>26.3f} {:>26.3f} {:>10}\n", row.name, left, right,
                        ratio ? fmt::format("{:.3f}", right / left) : "-");
  }
  const ProfileRatio ratio = ratio_of(a, b);
  return text + fmt::format("\nsteps alternate; ratio of single pairs: {:.3f} to {:.3f}\n",
                            ratio.low, ratio.high);
}

}  // namespace

std::string to_table(const ProfileReport& report) {
  std::string text = head(report) + '\n';
  if (report.runs.size() > 1) {
    text += compare_table(report);
    for (const ProfileRun& run : report.runs) {
      if (!run.notes.empty()) text += '\n' + wrapped(run.name + ":", "  ") + notes_of(run);
    }
    return text;
  }
  const ProfileTable table(report.runs.front());
  text += table.totals() + '\n' + table.layers();
  const std::string notes = notes_of(report.runs.front());
  return notes.empty() ? text : text + '\n' + notes;
}

}  // namespace fasa
