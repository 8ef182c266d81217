#include "tools/report/eval_scores.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/io/output_file.h"

namespace fasa {
namespace {

namespace fs = std::filesystem;

std::string scores_path(const std::string& results) { return results + ".scores.json"; }

// The folder of the metrics' code and its Python environment: those of the source tree for a
// program in its build folder, else the installed ones. Parent folders are not searched, because
// other users may be able to write there.
struct MetricsLocation {
  fs::path folder;  // contains fasa_metrics
  fs::path python;
};

MetricsLocation metrics_location() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path source = FASA_SOURCE_DIR;
  if (self.parent_path() == fs::weakly_canonical(FASA_BINARY_DIR, error)) {
    return {source / "tools", source / "build/metrics-venv/bin/python"};
  }
  const fs::path share = self.parent_path().parent_path() / "share/fasa";
  return {share, share / "metrics-venv/bin/python"};
}

std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

struct Output {
  int code = 0;
  std::string text;
};

Output output_of(const std::string& command) {
  Output output;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw UsageError(fmt::format("{} cannot be started", command));
  std::array<char, 4096> buffer;
  for (size_t count; (count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.text.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return output;
}

}  // namespace

MetricsProgram::MetricsProgram(std::string python) : python_(std::move(python)) {
  constexpr std::string_view kHow =
      "make an environment with tools/env metrics, or give one (--metrics-python PATH)";
  const MetricsLocation location = metrics_location();
  folder_ = location.folder.string();
  if (!fs::exists(location.folder / "fasa_metrics")) {
    throw UsageError(fmt::format(
        "{} does not contain fasa_metrics; run the program from its build folder or installation",
        folder_));
  }
  if (python_.empty() && fs::exists(location.python)) python_ = location.python.string();
  if (python_.empty())
    throw UsageError(fmt::format("the packages of the metrics are missing; {}", kHow));
  const Output output = output_of(command("--check"));
  if (output.code != 0) {
    throw UsageError(fmt::format("the metrics cannot run with {}: {}; {}", python_,
                                 output.text.substr(0, output.text.find('\n')), kHow));
  }
}

// `python -m` and `-c` search the working folder first, and other users may be able to write there.
std::string MetricsProgram::command(const std::string& argument) const {
  constexpr std::string_view kRun =
      "import sys; sys.path[:] = [p for p in sys.path if p]; import runpy; "
      "runpy.run_module(\"fasa_metrics\", run_name=\"__main__\", alter_sys=True)";
  return fmt::format("PYTHONPATH={} {} -c {} {} 2>&1", shell_quoted(folder_), shell_quoted(python_),
                     shell_quoted(std::string(kRun)), shell_quoted(argument));
}

nlohmann::json MetricsProgram::score(const std::string& results) const {
  const Output output = output_of(command(results));
  const size_t line = output.text.rfind("{\"scores\"");
  if (output.code != 0 || line == std::string::npos) {
    throw InputError(fmt::format("{}: the metrics failed: {}", results, output.text));
  }
  const nlohmann::json json =
      parse_json(std::string_view(output.text).substr(line), "the metrics' output");
  write_file_atomically(scores_path(results), json.dump());
  return json.at("scores");
}

void add_scores(const std::string& results, std::vector<nlohmann::json>& records) {
  const std::string path = scores_path(results);
  if (!fs::exists(path)) return;
  const nlohmann::json file = parse_json(read_file(path, kDataFile), path);
  const JsonFields fields(file, path);
  if (!fields.has("scores") || !fields.at("scores").is_object()) {
    fields.fail("scores", "an object of percentages by example");
  }
  const JsonFields scores(fields.at("scores"), path, "scores.");
  for (nlohmann::json& record : records) {
    const auto id = record.at("id").get<std::string>();
    if (scores.has(id.c_str())) record["score"] = scores.number(id.c_str(), 0, 100);
  }
}

}  // namespace fasa
