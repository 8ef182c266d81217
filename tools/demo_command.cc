// fasa demo: what fasa gives, on a real model and text, in a few minutes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>

#include "runtime/base/units.h"
#include "runtime/catalog/gpu_catalog.h"
#include "runtime/io/machine.h"
#include "tools/command.h"
#include "tools/config_flags.h"
#include "tools/demo_measures.h"
#include "tools/demo_model.h"
#include "tools/help_text.h"
#include "tools/progress.h"

namespace fasa {
namespace {

constexpr const char* kGpu = "RTX 4060 Ti 16GB";
constexpr int64_t kModelTokens = 8000;
constexpr int64_t kLongTokens = 131072;
constexpr int kColumns = 80;

void say(const std::string& text, int indent = 0) {
  fmt::print("{}{}\n", std::string(static_cast<size_t>(indent), ' '),
             wrapped(text, std::min(terminal_columns(), kColumns), indent, indent));
  std::fflush(stdout);
}

void announce(const std::string& text) {
  fmt::print("\n");
  say(text);
}

DemoProgress shown(Progress& progress) {
  return [&progress](int64_t done, int64_t total) { progress.update(done, total); };
}

void row(const std::string& name, const std::string& tiered, const std::string& full) {
  fmt::print("  {:<44} {:>15} {:>15}\n", name, tiered, full);
}

std::string quoted(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return "\"" + text.substr(std::min(text.find_first_not_of(' '), text.size())) + "\"";
}

std::string per_second(double seconds) { return fmt::format("{:.1f}", 1 / seconds); }
std::string milliseconds(double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); }

void print_document(const DocumentResult& result) {
  row("", "fasa-m", "full attention");
  row(fmt::format("\"{}\"", kAddedBeginning), quoted(result.tiered.answer),
      quoted(result.full.answer));
  row("KV cache on the device", format_bytes(result.tiered.memory.device_total()),
      format_bytes(result.full.memory.device_total()));
  row("KV cache on the host", format_bytes(result.tiered.memory.host_total()),
      format_bytes(result.full.memory.host_total()));
  say(fmt::format(
          "Both predict the same of the text's next {} tokens {} times ({:.1f} %); KL(full || "
          "fasa-m) is {:.4f} nats a token.",
          result.compared, result.same_token,
          100 * static_cast<double>(result.same_token) / static_cast<double>(result.compared),
          result.kl),
      2);
}

void print_speed(const std::string& what, const SpeedResult& speed) {
  row(what, per_second(speed.fasa_seconds), per_second(speed.full_seconds));
}

class DemoCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override {
    command_ = app.add_subcommand("demo", "Show what fasa gives, on a real model and text");
    command_->add_option("--model", model_, "Another model: a folder, or a GGUF file")
        ->type_name("DIR");
    command_->add_flag("--quick", quick_, "Only what needs no real model: speed, planted facts");
    return command_;
  }

  int run() override {
    reject_unknown_arguments(*command_);
    require_usable_target();
    const auto start = std::chrono::steady_clock::now();
    if (!quick_ && model_.empty()) fetch();
    if (!quick_ && !model_.empty()) show_document();
    show_speed();
    show_facts();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    fmt::print("\n{:.0f} s in all.\n", spent.count());
    show_next();
    return 0;
  }

 private:
  void fetch() {
    const DemoModel fetched = fetched_model();
    model_ = fetched.path;
    if (!model_.empty()) return;
    fmt::print(
        "SmolLM2 cannot be fetched ({}).\nThe parts that need a real model are left out; --model "
        "FILE takes one of your own.\n",
        fetched.problem);
  }

  void show_document() const {
    announce(fmt::format(
        "A document. A speech of 6,700 tokens, in which one sentence was added: \"{}\" The model "
        "reads it once and completes the sentence; then it predicts what follows. fasa-m runs on "
        "the emulated device. About a minute.",
        kAddedSentence));
    Progress progress("reading and predicting");
    const DocumentResult result = measure_document(model_, shown(progress));
    progress.clear();
    print_document(result);
  }

  void show_speed() const {
    announce("Speed on this processor, beside full attention. About half a minute.");
    SpeedResult model;
    if (!model_.empty()) model = measure_model_speed(model_, kModelTokens);
    const SpeedResult attention = measure_attention_speed(kLongTokens);
    const SpeedResult emulated = measure_emulated_step(kGpu, kLongTokens);
    row("", "fasa", "full attention");
    if (model.tokens > 0) print_speed("this model at 8,000 tokens, tokens/s", model);
    print_speed("Llama-3.1-8B's attention at 131,072, tokens/s", attention);
    row(fmt::format("emulated {}, a whole step", kGpu), milliseconds(emulated.fasa_seconds),
        milliseconds(emulated.full_seconds));
    say(fmt::format("The attention is one layer's time, times 32 layers, without the model's "
                    "weights. The last line is a prediction for weights in 4 bits and a link of "
                    "{}: no GPU has run it.",
                    format_rate(find_gpu(kGpu).link_bandwidth())),
        2);
  }

  static void show_facts() {
    announce("Facts planted in texts, asked of the bundled model. Half a minute.");
    Progress progress("asking");
    const FactsResult facts = measure_facts(shown(progress));
    progress.clear();
    say(fmt::format("Right answers: fasa-m {} of {}, full attention {} of {}.", facts.tiered_right,
                    facts.asked, facts.full_right, facts.asked),
        2);
  }

  void show_next() const {
    std::error_code error;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
    const std::string model = model_.empty() ? "MODEL.gguf" : model_;
    fmt::print("\nNext:\n  {} chat --model {}\n  {} serve --model {}\n", program, model, program,
               model);
  }

  CLI::App* command_ = nullptr;
  std::string model_;
  bool quick_ = false;
};

}  // namespace

std::unique_ptr<Command> make_demo_command() { return std::make_unique<DemoCommand>(); }

}  // namespace fasa
