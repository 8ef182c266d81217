#include "tools/eval_scores.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/io/json_fields.h"
#include "runtime/io/output_file.h"

namespace fasa {
namespace {

namespace fs = std::filesystem;

std::string scores_path(const std::string& results) { return results + ".scores.json"; }

// The folders above this program.
std::vector<fs::path> folders_above() {
  std::vector<fs::path> folders;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  for (fs::path up = self.parent_path(); !error && up != up.parent_path(); up = up.parent_path()) {
    folders.push_back(up);
  }
  return folders;
}

std::string first_existing(std::initializer_list<const char*> below) {
  for (const fs::path& folder : folders_above()) {
    for (const char* path : below) {
      if (fs::exists(folder / path)) return (folder / path).string();
    }
  }
  return "";
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
      "make the environment with tools/metrics-env, or name one (--metrics-python PATH)";
  const fs::path package = first_existing({"tools/fasa_metrics", "share/fasa/fasa_metrics"});
  if (package.empty()) {
    throw UsageError(
        "the folder fasa_metrics is not beside this program; run it from its source "
        "tree or installation");
  }
  folder_ = package.parent_path().string();
  if (python_.empty()) {
    python_ = first_existing({"build/metrics-venv/bin/python", "metrics-venv/bin/python"});
  }
  if (python_.empty()) throw UsageError(fmt::format("the metrics' packages are missing; {}", kHow));
  const Output output = output_of(fmt::format("PYTHONPATH={} {} -m fasa_metrics --check 2>&1",
                                              shell_quoted(folder_), shell_quoted(python_)));
  if (output.code != 0) {
    throw UsageError(fmt::format("the metrics do not run with {}: {}; {}", python_,
                                 output.text.substr(0, output.text.find('\n')), kHow));
  }
}

nlohmann::json MetricsProgram::score(const std::string& results) const {
  const Output output =
      output_of(fmt::format("PYTHONPATH={} {} -m fasa_metrics {} 2>&1", shell_quoted(folder_),
                            shell_quoted(python_), shell_quoted(results)));
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
  const nlohmann::json scores = parse_json(read_text_file(path), path);
  for (nlohmann::json& record : records) {
    const auto id = record.at("id").get<std::string>();
    if (scores.at("scores").contains(id)) record["score"] = scores.at("scores").at(id);
  }
}

}  // namespace fasa
