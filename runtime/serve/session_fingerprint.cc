#include "runtime/serve/session_fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/config_options.h"
#include "runtime/io/input_file.h"
#include "runtime/llm/gguf/gguf_files.h"

namespace fasa::serve {
namespace {

namespace fs = std::filesystem;

// Name, size and time: weights are too large to be hashed.
std::string state_of(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) {
    throw InputError(fmt::format("{}: {}", file.string(), std::strerror(errno)));
  }
  return fmt::format("{} {} {}.{:09}\n", file.filename().string(), status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

std::string contents_of(const fs::path& file) {
  const std::string bytes = read_file(file.string(), kDataFile);
  return fmt::format("{} {:016x}\n", file.filename().string(),
                     XXH3_64bits(bytes.data(), bytes.size()));
}

// One line for each model file that defines tokens or computation.
std::string files_of(const std::string& path) {
  std::error_code error;
  std::vector<std::string> lines;
  if (is_gguf(path)) {
    for (const std::string& file : gguf_paths(path)) {
      if (fs::exists(file, error)) lines.push_back(state_of(file));
    }
    return fmt::format("{}", fmt::join(lines, ""));
  }
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& file = entry->path();
    if (file.extension() == ".safetensors") lines.push_back(state_of(file));
    if (file.extension() == ".json" || file.extension() == ".model") {
      lines.push_back(contents_of(file));
    }
  }
  if (error) throw InputError(fmt::format("{}: {}", path, error.message()));
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}", fmt::join(lines, ""));
}

}  // namespace

std::string session_fingerprint(const SessionSubject& subject, const Config& config) {
  const nlohmann::json settings = config_to_json(config);
  const std::string all =
      fmt::format("{}{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", subject.version,
                  subject.short_factors ? " short factors" : "", files_of(subject.path),
                  static_cast<int>(subject.device), dtype_name(subject.dtype),
                  row_dtype_name(subject.row_dtype), fmt::join(subject.slice_dims, " "),
                  settings.at("selection").dump(), settings.at("weights").dump());
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace fasa::serve
