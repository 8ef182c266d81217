#include "runtime/eval/data_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/io/nearest.h"

namespace fasa {
namespace {

bool is_known(std::span<const std::string_view> known, std::string_view name) {
  return known.empty() || std::find(known.begin(), known.end(), name) != known.end();
}

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

std::vector<std::string> files_in(const std::string& folder,
                                  std::span<const std::string_view> known) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().stem().string();
    // A list is a data set if it is a known one; others may be anything.
    if (known.empty() && entry.path().extension() == ".json") continue;
    if (!is_known(known, name) || !is_file(data_file(folder, name))) continue;
    if (data_file(folder, name).starts_with(entry.path().string())) names.push_back(name);
  }
  if (error) {
    throw InputError(
        fmt::format("--data {}: {}; give a folder of JSONL files", folder, error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> data_sets(const std::string& task, const std::string& folder,
                                   const std::vector<std::string>& asked,
                                   std::span<const std::string_view> known) {
  if (folder.empty()) {
    throw UsageError(fmt::format(
        "eval {}: --data is missing; give the folder that holds its JSONL files", task));
  }
  require_known(asked, known);
  auto found = asked.empty() ? files_in(folder, known) : asked;
  if (!found.empty()) return found;
  throw InputError(fmt::format(
      "--data {}: the folder has no data set; it should hold {}", folder,
      known.empty() ? "files NAME.jsonl"
                    : fmt::format("NAME.jsonl or NAME.json for {}", fmt::join(known, ", "))));
}

std::string data_file(const std::string& folder, const std::string& name) {
  const std::filesystem::path base = std::filesystem::path(folder) / name;
  const std::string usual = base.string() + ".jsonl";
  for (const std::string& path :
       {usual, base.string() + ".json", (base / "validation.jsonl").string()}) {
    if (is_file(path)) return path;
  }
  return usual;
}

void require_known(const std::vector<std::string>& asked, std::span<const std::string_view> known) {
  const std::vector<std::string> names(known.begin(), known.end());
  for (const std::string& name : asked) {
    if (name.find('/') != std::string::npos) {
      throw UsageError(fmt::format("--tasks = \"{}\"; allowed: names without a folder", name));
    }
    if (is_known(known, name)) continue;
    throw UsageError(fmt::format("--tasks = \"{}\"{}; allowed: {}", name, nearest_hint(name, names),
                                 fmt::join(names, ", ")));
  }
}

}  // namespace fasa
