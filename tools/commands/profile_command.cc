// fasa profile: the time of decode steps by layer and cause.
#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/io/machine.h"
#include "runtime/io/output_file.h"
#include "tools/commands/command.h"
#include "tools/commands/profile_prompt.h"
#include "tools/commands/profile_subject.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/help_text.h"
#include "tools/flags/prefill_chunk_flag.h"
#include "tools/flags/slice_choice.h"
#include "tools/report/profile_timeline.h"
#include "tools/report/report_page.h"
#include "tools/terminal/progress.h"

namespace fasa {
namespace {

class ProfileCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override;
  int run() override;

 private:
  void add_subject_flags();
  std::vector<std::pair<std::string, Config>> read_configs(ProfileSubject& subject) const;
  void take_steps(ProfileReport& report) const;

  CLI::App* command_ = nullptr;
  ConfigFlags config_flags_;
  ProfileOptions flags_;
  CLI::Option* tokens_ = nullptr;
  std::vector<std::string> compare_;
  std::string html_;
  bool json_ = false;
  bool no_advice_ = false;
  bool prefill_ = false;
  int prefill_chunk_ = kAutomaticChunk;
};

void ProfileCommand::add_subject_flags() {
  add_option(*command_, "--model", flags_.model_dir, "DIR",
             "Profile the generation of this model (a folder or a GGUF file)");
  add_prompt_options(*command_, flags_.prompt);
  add_option(
      *command_, "--geometry", flags_.geometry, "NAME",
      "Profile a synthetic decode of a named model without weights (names: fasa plan --list)");
  tokens_ = add_shown_option(*command_, "--tokens", flags_.tokens, "N",
                             "With --geometry: context length before the first step");
  add_shown_option(*command_, "--sequences", flags_.sequences, "N",
                   "With --geometry: number of sequences that decode together");
  add_shown_option(*command_, "--step-tokens", flags_.step_tokens, "N",
                   "With --geometry: tokens of each sequence in a step, as with drafts");
  add_option(*command_, "--selection-trace", flags_.trace_file, "FILE",
             "With --geometry: file of selections from fasa trace; default: the bundled one");
  add_option(*command_, "--weight-bits", flags_.weight_bits, "N",
             "With --geometry: weights in 4, 8 or 16 bits; 0 = attention alone; default: 4");
}

CLI::App* ProfileCommand::add_to(CLI::App& app) {
  command_ = app.add_subcommand("profile", "Show how a decode spends its time, layer by layer");
  add_subject_flags();
  add_shown_option(*command_, "--steps", flags_.steps, "N", "Number of decode steps to measure");
  add_option(*command_, "--warmup", flags_.warmup, "N",
             "Number of steps before them, which fill the hot rows; default: from 48 on, until "
             "the hit rate no longer rises");
  add_option(*command_, "--compare", compare_, "A.toml B.toml",
             "Compare two config files, with alternating steps; flags override both")
      ->expected(2);
  command_->add_flag("--prefill", prefill_,
                     "With --geometry: profile a prompt of --tokens tokens instead of a decode");
  add_prefill_chunk(*command_, prefill_chunk_);
  add_option(*command_, "--html", html_, "FILE", "Write an HTML report");
  command_->add_flag("--no-advice", no_advice_,
                     "Try no other settings, which takes two to four times as long");
  command_->add_flag("--json", json_, "Print one JSON object instead of tables");
  config_flags_.add_to(*command_);
  return command_;
}

std::vector<std::pair<std::string, Config>> ProfileCommand::read_configs(
    ProfileSubject& subject) const {
  if (!compare_.empty() && config_flags_.has_file()) {
    throw UsageError("--compare and --config exclude each other; give one of them");
  }
  std::vector<std::pair<std::string, Config>> configs;
  if (compare_.empty()) configs.emplace_back("", config_flags_.load(subject.defaults()));
  for (const std::string& file : compare_) {
    configs.emplace_back(file, config_flags_.load_file(file, subject.defaults()));
  }
  for (auto& [name, config] : configs) {
    if (!flags_.synthetic()) config = with_map(std::move(config), flags_.model_dir);
    subject.check(config);
    if (config.trace.file.empty()) continue;
    if (!compare_.empty()) {
      throw UsageError(
          "--trace-file and --compare exclude each other, because a trace belongs to one config; "
          "give one of them");
    }
    check_writable(config.trace.file);
  }
  return configs;
}

// Runs that are compared alternate.
void ProfileCommand::take_steps(ProfileReport& report) const {
  Progress progress("profiling");
  const int least = flags_.warmup.value_or(kUsualWarmup);
  const int most = flags_.warmup.value_or(kMaxWarmup);
  for (ProfileRun& run : report.runs) {
    int64_t done = 0;
    run.warmup =
        warm_up(*run.decode, least, most, [&] { progress.update(++done, least + flags_.steps); });
  }
  for (int done = 0; done < flags_.steps; ++done) {
    for (ProfileRun& run : report.runs) run.decode->step();
    progress.update(least + done + 1, least + flags_.steps);
  }
  progress.clear();
  for (ProfileRun& run : report.runs) add_late_notes(run);
}

int ProfileCommand::run() {
  reject_unknown_arguments(*command_);
  if (tokens_->count() > 0 && !flags_.synthetic() && !flags_.model_dir.empty()) {
    throw UsageError("--tokens needs --geometry; with --model the context is the prompt");
  }
  flags_.validate();
  if (!html_.empty()) check_writable(html_);
  ProfileSubject subject(flags_);
  const auto configs = read_configs(subject);
  require_usable_target();
  if (prefill_) {
    if (!compare_.empty() || !html_.empty() || flags_.sequences != 1 || flags_.step_tokens != 1) {
      throw UsageError("--prefill excludes --compare, --html, --sequences and --step-tokens");
    }
    const PromptProfile profile = profile_prompt(flags_, configs.front().second, prefill_chunk_);
    fmt::print("{}", json_ ? to_json(profile).dump(2) + "\n" : folded(to_table(profile)));
    return 0;
  }
  subject.prepare();
  ProfileReport report;
  subject.describe(report);
  for (const auto& [name, config] : configs) report.runs.push_back(subject.open(name, config));
  take_steps(report);
  if (flags_.synthetic() && compare_.empty() && !no_advice_) {
    report.advice = advise(subject, report.runs.front(), flags_.steps);
  }
  if (!html_.empty()) {
    nlohmann::json page = to_json(report);
    for (const ProfileRun& run : report.runs)
      page["timelines"].push_back(timeline_json(*run.decode));
    write_file_atomically(html_, report_page("profile", std::move(page)));
  }
  const ProfileRun& first = report.runs.front();
  const std::string& trace = first.config.trace.file;
  if (!trace.empty()) write_file_atomically(trace, first.decode->last_step_trace());
  fmt::print("{}", json_ ? to_json(report).dump(2) + "\n" : folded(to_table(report)));
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_profile_command() { return std::make_unique<ProfileCommand>(); }

}  // namespace fasa
