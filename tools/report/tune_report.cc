#include "tools/report/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "runtime/base/units.h"
#include "runtime/config/config_options.h"
#include "runtime/config/settings_toml.h"
#include "runtime/tune/tune_space.h"
#include "tools/flags/help_text.h"
#include "tools/report/text_table.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

std::string times(const TuneTrial& trial) {
  if (!trial.measured) return "does not fit";
  return fmt::format("{:.3f} ms a token", trial.measured->tpot_seconds * 1e3);
}

std::string quality(const StepCounters& rows) {
  std::string text = fmt::format("hit rate {:.1f} %", 100 * rows.hit_rate());
  if (rows.prefetched > 0) {
    text += fmt::format(", prefetch: accuracy {:.1f} %, coverage {:.1f} %", 100 * rows.accuracy(),
                        100 * rows.coverage());
  }
  return text;
}

std::string ms_of(const TuneTrial& trial) {
  return fmt::format("{:.3f}", trial.measured->tpot_seconds * 1e3);
}

// Share that the best trial saves of another one's time.
double gain(const TuneReport& report, const TuneTrial& other) {
  return 1 - report.best_trial().measured->tpot_seconds / other.measured->tpot_seconds;
}

// What was found, in a sentence: whether a file is needed at all.
std::string outcome(const TuneReport& report) {
  const size_t count = report.trials.size();
  const std::string of = fmt::format("{} setting{}", count, count == 1 ? "" : "s");
  const TuneTrial& given = report.trials.front();
  if (report.best == 0) {
    return report.given_defaults
               ? fmt::format("The defaults are the fastest of {}; you need no file.", of)
               : fmt::format("The given settings are the fastest of {}.", of);
  }
  const std::string before = report.given_defaults ? "the defaults" : "the given settings";
  if (!given.measured) return fmt::format("Of {} this is the fastest; {} do not fit.", of, before);
  return fmt::format("{}: {} ms in place of {} of {} ({:.1f} % less), the fastest of {}.",
                     tuned_words(report.best_trial().config), ms_of(report.best_trial()),
                     ms_of(given), before, 100 * gain(report, given), of);
}

// The first measured trial that differs from the given settings by its prefetch alone.
const TuneTrial* with_prefetch(const TuneReport& report, const Config::Prefetch& prefetch) {
  for (const TuneTrial& trial : report.trials) {
    Config same = report.trials.front().config;
    same.prefetch.depth = prefetch.depth;
    same.prefetch.predictor = prefetch.predictor;
    if (trial.measured && config_to_json(trial.config) == config_to_json(same)) return &trial;
  }
  return nullptr;
}

// What the depth does, everything else as given.
std::string depth_words(const TuneReport& report) {
  struct Row {
    const char* name;
    std::optional<int> depth;
    PredictorKind predictor;
  };
  constexpr Row kRows[] = {{"auto", {}, PredictorKind::kAuto},
                           {"0", 0, PredictorKind::kAuto},
                           {"1", 1, PredictorKind::kRunnersUp}};
  std::string text;
  for (const Row& row : kRows) {
    Config::Prefetch prefetch;
    prefetch.depth = row.depth;
    prefetch.predictor = row.predictor;
    const TuneTrial* trial = with_prefetch(report, prefetch);
    if (trial == nullptr) continue;
    text += fmt::format("{}{} {} ms", text.empty() ? "Depth " : "; ", row.name, ms_of(*trial));
  }
  if (text.empty()) return "";
  return text + " (2 and more layers ahead: the same rows).";
}

std::string lines(const TuneReport& report, std::string_view prefix) {
  const TuneTrial& best = report.best_trial();
  std::string text;
  const auto line = [&](const std::string& what) { text += fmt::format("{}{}\n", prefix, what); };
  line(outcome(report));
  if (const std::string depths = depth_words(report); !depths.empty()) line(depths);
  line(fmt::format("{}, {} tokens, {}", report.model, report.tokens, report.machine));
  line(fmt::format("{} trial{} of {} steps{}", report.trials.size(),
                   report.trials.size() == 1 ? "" : "s", best.measured->decode_steps,
                   report.exhausted ? ", all possible ones" : ""));
  line("Best:     " + tuned_words(best.config));
  line("          " + times(best));
  line("          " + quality(best.measured->rows));
  if (report.best != 0) {
    line("As given: " + tuned_words(report.trials.front().config));
    line("          " + times(report.trials.front()));
  }
  return text;
}

Json trial_json(const TuneTrial& trial) {
  const Json config = config_to_json(trial.config);
  Json json = {{"hot_rows", config["placement"]["hot_rows"]},
               {"depth", config["prefetch"]["depth"]},
               {"predictor", config["prefetch"]["predictor"]},
               {"streams", config["prefetch"]["streams"]},
               {"fits", trial.measured.has_value()}};
  if (!trial.measured) return json;
  const StepCounters& rows = trial.measured->rows;
  json["tpot_ms"] = trial.measured->tpot_seconds * 1e3;
  json["steps"] = trial.measured->decode_steps;
  json["hit_rate"] = rows.hit_rate();
  json["prefetch"] = {{"accuracy", rows.accuracy()}, {"coverage", rows.coverage()}};
  if (trial.measured->hidden) json["hidden"] = *trial.measured->hidden;
  if (trial.measured->wasted_bytes) json["wasted_bytes_per_step"] = *trial.measured->wasted_bytes;
  return json;
}

}  // namespace

std::string to_toml(const TuneReport& report) {
  // For any device: the emulated one was only for measuring.
  Config config = report.best_trial().config;
  if (config.device.name == "emulated") config.device.name = Config().device.name;
  return "# Found by fasa tune.\n" + lines(report, "# ") + plan_toml(config);
}

Json to_json(const TuneReport& report) {
  Json trials = Json::array();
  for (const TuneTrial& trial : report.trials) trials.push_back(trial_json(trial));
  return {{"model", report.model},         {"tokens", report.tokens},
          {"machine", report.machine},     {"seconds", report.seconds},
          {"exhausted", report.exhausted}, {"given", trials.front()},
          {"best", trials[report.best]},   {"trials", trials},
          {"outcome", outcome(report)},    {"depths", depth_words(report)},
          {"toml", to_toml(report)}};
}

namespace {

std::string option_text(const Config& config, const char* table, const char* key) {
  const Json value = find_option(table, key)->get(config);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Trials by depth, predictor and hot rows.
std::vector<size_t> in_order(const TuneReport& report) {
  std::vector<size_t> order(report.trials.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t trial) {
    const Config& config = report.trials[trial].config;
    return std::make_tuple(config.prefetch.depth.value_or(-1), config.prefetch.predictor,
                           config.placement.hot_rows.value_or(-1));
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

std::vector<std::string> trial_cells(const TuneReport& report, size_t index) {
  const TuneTrial& trial = report.trials[index];
  const Config& config = trial.config;
  const auto of = [&](const char* table, const char* key) {
    return option_text(config, table, key);
  };
  std::vector<std::string> cells = {index == report.best ? "*" : "", of("prefetch", "depth"),
                                    of("prefetch", "predictor"), of("placement", "hot_rows"),
                                    of("prefetch", "streams")};
  if (!trial.measured) {
    cells.insert(cells.end(), {"no fit", "-", "-", "-"});
    return cells;
  }
  const TuneMeasurement& measured = *trial.measured;
  cells.push_back(fmt::format("{:.3f}", measured.tpot_seconds * 1e3));
  cells.push_back(fmt::format("{:.1f}", 100 * measured.rows.hit_rate()));
  cells.push_back(measured.hidden ? fmt::format("{:.1f}", 100 * *measured.hidden) : "-");
  cells.push_back(
      measured.wasted_bytes ? format_bytes(static_cast<uint64_t>(*measured.wasted_bytes)) : "-");
  return cells;
}

// What the automatic values of the best trial mean.
std::string automatic_words(const TuneReport& report) {
  const Config& best = report.best_trial().config;
  std::string text;
  if (!best.prefetch.depth) {
    const bool ahead = report.best_trial().measured->rows.prefetched > 0;
    text += ahead ? "depth auto fetched ahead here: that makes steps shorter.\n"
                  : "depth auto fetched nothing ahead here: that makes no step shorter.\n";
  }
  if (!best.placement.hot_rows) {
    text +=
        "hot_rows auto: from 2 to 16 sets, as many as make fetches shortest on this link and "
        "fit.\n";
  }
  return text;
}

std::string notes_of(const TuneReport& report) {
  std::set<std::string> notes;
  for (const TuneTrial& trial : report.trials) {
    if (trial.measured && !trial.measured->note.empty()) notes.insert(trial.measured->note);
  }
  std::string text;
  for (const std::string& note : notes) text += paragraph(note, 2);
  return text;
}

}  // namespace

// Trials as fast as the best one to two thousandths, besides the best and the given settings.
static bool is_tie(const TuneReport& report, size_t index) {
  constexpr double kTie = 2e-3;
  const TuneTrial& trial = report.trials[index];
  return index != report.best && index != 0 && trial.measured && gain(report, trial) < kTie;
}

std::string to_table(const TuneReport& report) {
  TextTable table({"", "depth", "predictor", "hot\nrows", "streams", "ms a\ntoken", "hit\n%",
                   "hidden\n%", "wasted\na step"},
                  3);
  size_t ties = 0;
  for (const size_t index : in_order(report)) {
    if (is_tie(report, index)) {
      ++ties;
    } else {
      table.add(trial_cells(report, index));
    }
  }
  std::string text = lines(report, "") + '\n' + table.text() + '\n';
  if (ties > 0) {
    text += fmt::format("{} as fast as the best, to 0.2 % (--json lists {}).\n",
                        ties == 1 ? "Another setting is" : fmt::format("{} others are", ties),
                        ties == 1 ? "it" : "them");
  }
  return text + automatic_words(report) + notes_of(report);
}

}  // namespace fasa
