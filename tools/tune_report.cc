#include "tools/tune_report.h"

#include <fmt/format.h>

#include "runtime/config/config_options.h"
#include "runtime/plan/settings_toml.h"
#include "runtime/tune/tune_space.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

std::string times(const TuneTrial& trial) {
  if (!trial.measured) return "does not fit";
  std::string text = fmt::format("{:.3f} ms a token measured", trial.measured->tpot_seconds * 1e3);
  if (const auto predicted = trial.measured->predicted_seconds) {
    text += fmt::format(", {:.3f} predicted", *predicted * 1e3);
  }
  return text;
}

std::string quality(const StepCounters& rows) {
  std::string text = fmt::format("hit rate {:.1f} %", 100 * rows.hit_rate());
  if (rows.prefetched > 0) {
    text += fmt::format(", prefetch: accuracy {:.1f} %, coverage {:.1f} %", 100 * rows.accuracy(),
                        100 * rows.coverage());
  }
  return text;
}

std::string lines(const TuneReport& report, std::string_view prefix) {
  const TuneTrial& best = report.best_trial();
  std::string text;
  const auto line = [&](const std::string& what) { text += fmt::format("{}{}\n", prefix, what); };
  line(fmt::format("{}, {} tokens", report.model, report.tokens));
  line(report.machine);
  line(fmt::format("{} trials of {} steps{}", report.trials.size(), best.measured->decode_steps,
                   report.exhausted ? ", all possible ones" : ""));
  line("Best:     " + tuned_words(best.config));
  line("          " + times(best));
  line("          " + quality(best.measured->rows));
  line("As given: " + tuned_words(report.trials.front().config));
  line("          " + times(report.trials.front()));
  return text;
}

Json trial_json(const TuneTrial& trial) {
  const Json config = config_to_json(trial.config);
  Json json = {{"hot_rows", config["placement"]["hot_rows"]},
               {"replacement", config["placement"]["replacement"]},
               {"depth", config["prefetch"]["depth"]},
               {"predictor", config["prefetch"]["predictor"]},
               {"streams", config["prefetch"]["streams"]},
               {"fac_tokens", config["selection"]["fac_tokens"]},
               {"low_bit_tokens", config["selection"]["low_bit_tokens"]},
               {"fits", trial.measured.has_value()}};
  if (!trial.measured) return json;
  const StepCounters& rows = trial.measured->rows;
  json["tpot_ms"] = trial.measured->tpot_seconds * 1e3;
  if (const auto predicted = trial.measured->predicted_seconds) {
    json["predicted_tpot_ms"] = *predicted * 1e3;
  }
  json["steps"] = trial.measured->decode_steps;
  json["hit_rate"] = rows.hit_rate();
  json["prefetch"] = {{"accuracy", rows.accuracy()}, {"coverage", rows.coverage()}};
  return json;
}

}  // namespace

std::string to_toml(const TuneReport& report) {
  return "# Found by fasa tune.\n" + lines(report, "# ") +
         settings_toml(report.best_trial().config);
}

Json to_json(const TuneReport& report) {
  Json trials = Json::array();
  for (const TuneTrial& trial : report.trials) trials.push_back(trial_json(trial));
  return {{"model", report.model},         {"tokens", report.tokens},
          {"machine", report.machine},     {"seconds", report.seconds},
          {"exhausted", report.exhausted}, {"given", trials.front()},
          {"best", trials[report.best]},   {"trials", trials},
          {"toml", to_toml(report)}};
}

std::string to_table(const TuneReport& report) { return lines(report, ""); }

}  // namespace fasa
