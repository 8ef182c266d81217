// fasa tune: searches for the settings of rows and prefetch with the least time per token.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/base/units.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/config/settings_toml.h"
#include "runtime/io/machine.h"
#include "runtime/io/output_file.h"
#include "runtime/tune/tune_space.h"
#include "tools/commands/command.h"
#include "tools/commands/emulated_decode.h"
#include "tools/commands/tune_objective.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/help_text.h"
#include "tools/flags/slice_choice.h"
#include "tools/report/tune_report.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/terminal.h"

namespace fasa {
namespace {

class TuneCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override;
  int run() override;

 private:
  void check_values() const;
  double time_limit() const;
  Config load_config() const;
  std::unique_ptr<TuneObjective> make_objective(const Config& config, Geometry& geometry) const;
  TuneReport search(TuneObjective& objective, const TuneSpace& space,
                    const Deadline& deadline) const;
  std::string machine_words(const Config& config) const;

  CLI::App* command_ = nullptr;
  ConfigFlags flags_;
  std::string model_dir_;
  std::string prompt_file_;
  std::string geometry_;
  int64_t tokens_ = 0;
  int weight_bits_ = kUsualWeightBits;
  int steps_ = 16;
  int64_t trials_ = 0;
  uint64_t seed_ = 0;
  std::string time_limit_ = "60s";
  std::string output_;
  bool json_ = false;
};

CLI::App* TuneCommand::add_to(CLI::App& app) {
  command_ = app.add_subcommand("tune", "Search for the fastest hot rows, prefetch and streams");
  add_model_option(*command_, model_dir_);
  add_option(*command_, "--prompt-file", prompt_file_, "FILE", "File with the text of the prompt");
  add_option(*command_, "--geometry", geometry_, "NAME",
             "A model by name, without weights (names: fasa plan --list)");
  add_option(*command_, "--tokens", tokens_, "N", "Context length with --geometry");
  add_shown_option(
      *command_, "--weight-bits", weight_bits_, "N",
      "With --geometry: count time and memory of weights with 16, 8 or 4 bits; 0 = none");
  add_shown_option(*command_, "--steps", steps_, "N", "Measured steps per trial");
  add_shown_option(*command_, "--time-limit", time_limit_, "TIME",
                   "Time after which no new trial begins; the first is always finished");
  add_shown_option(*command_, "--trials", trials_, "N",
                   "Maximum number of trials; 0 = as many as time allows");
  add_shown_option(*command_, "--seed", seed_, "N", "Seed of the search");
  add_option(*command_, "-o,--output", output_, "FILE.toml", "Config file to write");
  command_->add_flag("--json", json_, "Print one JSON object");
  flags_.add_to(*command_);
  return command_;
}

void TuneCommand::check_values() const {
  if (model_dir_.empty() == geometry_.empty()) {
    throw UsageError(model_dir_.empty()
                         ? "tuning needs --model DIR and --prompt-file FILE, or --geometry NAME "
                           "and --tokens N"
                         : "--model and --geometry exclude each other; give one of them");
  }
  if (!model_dir_.empty() && prompt_file_.empty()) {
    throw UsageError("tuning with --model needs --prompt-file FILE");
  }
  if (!geometry_.empty()) {
    if (!prompt_file_.empty()) throw UsageError("--prompt-file needs --model");
    require(tokens_ >= 1 && tokens_ <= INT32_MAX / 2, "--tokens", tokens_, "1 to 1073741823");
  }
  const int bits = weight_bits_;
  require(bits == 0 || bits == 4 || bits == 8 || bits == 16, "--weight-bits", bits, "16, 8, 4, 0");
  require(steps_ >= 1 && steps_ <= 4096, "--steps", steps_, "1 to 4096");
  require(trials_ >= 0, "--trials", trials_, "0 or more");
}

double TuneCommand::time_limit() const {
  const auto seconds = parse_seconds(time_limit_);
  require(seconds && *seconds > 0, "--time-limit", fmt::format("\"{}\"", time_limit_),
          "a time above 0, such as \"60s\"");
  return *seconds;
}

Config TuneCommand::load_config() const {
  Config defaults;
  defaults.device.name = "emulated";
  if (!geometry_.empty()) defaults.device.gpu = kUsualGpu;
  Config config = flags_.load(defaults);
  return model_dir_.empty() ? config : with_map(std::move(config), model_dir_);
}

std::unique_ptr<TuneObjective> TuneCommand::make_objective(const Config& config,
                                                           Geometry& geometry) const {
  if (!geometry_.empty()) {
    const ModelShape& shape = find_model_shape(geometry_);
    geometry = shape.geometry;
    config.validate_for(geometry);
    return std::make_unique<SyntheticObjective>(
        SyntheticObjective::Settings{.shape = shape,
                                     .tokens = tokens_,
                                     .weight_bits = weight_bits_,
                                     .steps = steps_,
                                     .seed = seed_},
        config);
  }
  auto objective = std::make_unique<GenerationObjective>(model_dir_, prompt_file_, steps_, config);
  geometry = objective->geometry();
  return objective;
}

std::string TuneCommand::machine_words(const Config& config) const {
  const bool emulated = config.device.name == "emulated" || !geometry_.empty();
  std::string text = !emulated                   ? config.device.name
                     : config.device.gpu.empty() ? "emulated device"
                                                 : config.device.gpu;
  if (config.memory.device_memory) {
    text += fmt::format(" with {} of memory", format_bytes(*config.memory.device_memory));
  }
  if (!emulated) return text;
  text += fmt::format(", link {} and {}", format_rate(config.device_options().link_bandwidth),
                      format_seconds(config.link.latency));
  if (geometry_.empty()) return text;
  return text + (weight_bits_ == 0 ? std::string(", attention alone")
                                   : fmt::format(", weights with {} bits", weight_bits_));
}

// nullopt if the config does not fit; `unfit` keeps the first error.
std::optional<TuneMeasurement> measure(TuneObjective& objective, const Config& config,
                                       const Deadline& deadline, std::exception_ptr& unfit) {
  try {
    deadline.check();
    return objective.measure(config, deadline);
  } catch (const BudgetError&) {
    if (!unfit) unfit = std::current_exception();
    return std::nullopt;
  }
}

std::string best_words(const TuneReport& report, const Deadline& deadline) {
  const TuneTrial& best = report.best_trial();
  return fmt::format("{} trial{}, {:.0f} of {:.0f} s; best {:.3f} ms a token: {}",
                     report.trials.size(), report.trials.size() == 1 ? "" : "s", deadline.elapsed(),
                     deadline.seconds(), best.measured->tpot_seconds * 1e3,
                     tuned_words(best.config));
}

TuneReport TuneCommand::search(TuneObjective& objective, const TuneSpace& space,
                               const Deadline& deadline) const {
  TuneSearch search(space.sizes(), space.start(), seed_);
  TuneReport report;
  Progress progress("tuning");
  std::exception_ptr unfit;
  double longest = 0;
  bool found = false;
  const Interrupts interrupts;  // Ctrl-C ends the search, not the command
  const Deadline never(std::numeric_limits<double>::infinity());  // of the first trial that fits
  while (trials_ == 0 || static_cast<int64_t>(report.trials.size()) < trials_) {
    if (found && (deadline.left() < longest || Interrupts::came())) break;
    if (!found && unfit && deadline.left() <= 0) break;
    const auto point = search.next();
    report.exhausted = !point;
    if (!point) break;
    TuneTrial trial{.config = space.config(*point), .measured = {}};
    const double before = deadline.elapsed();
    try {
      trial.measured = measure(objective, trial.config, found ? deadline : never, unfit);
    } catch (const TimeUp&) {
      if (found) break;
      if (unfit) std::rethrow_exception(unfit);
      throw;
    }
    longest = std::max(longest, deadline.elapsed() - before);
    found = found || trial.measured;
    constexpr double kNever = std::numeric_limits<double>::infinity();
    const bool best = search.report(trial.measured ? trial.measured->tpot_seconds : kNever);
    if (best) report.best = report.trials.size();
    report.trials.push_back(std::move(trial));
    if (found) progress.say(best_words(report, deadline));
  }
  if (!found) std::rethrow_exception(unfit);
  report.seconds = deadline.elapsed();
  return report;
}

int TuneCommand::run() {
  reject_unknown_arguments(*command_);
  check_values();
  const double seconds = time_limit();
  const Config config = load_config();
  require_usable_target();
  if (!output_.empty()) check_writable(output_);
  const Deadline deadline(seconds);
  Geometry geometry;
  const auto objective = make_objective(config, geometry);
  const TuneSpace space(config, geometry, objective->tokens());
  TuneReport report = search(*objective, space, deadline);
  report.model = objective->model();
  report.tokens = objective->tokens();
  report.machine = machine_words(config);
  report.given_defaults = settings_toml(config) == settings_toml(Config());
  if (!output_.empty()) write_file_atomically(output_, to_toml(report));
  if (json_) {
    fmt::print("{}\n", to_json(report).dump(2));
  } else if (output_.empty()) {
    fmt::print("{}", to_toml(report));
  } else {
    fmt::print("{}Written to {}\n", folded(to_table(report)), output_);
  }
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_tune_command() { return std::make_unique<TuneCommand>(); }

}  // namespace fasa
