#include "runtime/llm/gguf/gguf_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "runtime/base/error.h"

namespace fasa {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".gguf";
constexpr int64_t kMaxParts = UINT16_MAX;

// What a name of the form STEM-00002-of-00003.gguf says.
struct PartName {
  std::string stem;
  int64_t number = 1;
  int64_t count = 1;

  std::string of(int64_t part) const {
    return fmt::format("{}-{:05}-of-{:05}.gguf", stem, part, count);
  }
  std::vector<std::string> all() const {
    std::vector<std::string> paths;
    for (int64_t part = 1; part <= count; ++part) paths.push_back(of(part));
    return paths;
  }
};

std::optional<PartName> part_name(const std::string& path) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kEnd = 1 + kDigits + kOf.size() + kDigits;  // -00002-of-00003
  if (!path.ends_with(kSuffix) || path.size() <= kEnd + kSuffix.size()) return std::nullopt;
  const size_t begin = path.size() - kSuffix.size() - kEnd;
  const std::string_view end = std::string_view(path).substr(begin, kEnd);
  const std::string number(end.substr(1, kDigits)), count(end.substr(kEnd - kDigits));
  const auto digits = [](const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (end[0] != '-' || end.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  if (!digits(number) || !digits(count)) return std::nullopt;
  PartName name{path.substr(0, begin), std::stoll(number), std::stoll(count)};
  if (name.number < 1 || name.number > name.count) return std::nullopt;
  return name;
}

// The models of a folder: whole files and first parts, in order of their names.
std::vector<std::string> models_in(const std::string& folder) {
  std::set<std::string> models;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (entry->path().extension() != kSuffix) continue;
    if (entry->path().filename().string().find("mmproj") != std::string::npos) continue;
    const auto part = part_name(path);
    models.insert(part ? part->of(1) : path);
  }
  return {models.begin(), models.end()};
}

bool is_folder_of_gguf(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && !fs::exists(fs::path(path) / "config.json", error) &&
         !models_in(path).empty();
}

std::string file_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  const std::vector<std::string> models = models_in(path);
  if (models.size() == 1) return models.front();
  std::vector<std::string> names;
  for (const std::string& model : models) names.push_back(fs::path(model).filename().string());
  throw InputError(fmt::format("{}: the folder holds {} GGUF models; give one of them: {}", path,
                               names.size(), fmt::join(names, ", ")));
}

int64_t parts_of(const GgufHeader& header) {
  return std::max<int64_t>(1, header.integer_or("split.count", 0, kMaxParts, 1));
}

}  // namespace

bool is_gguf(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) || fs::path(path).extension() == kSuffix ||
         is_folder_of_gguf(path);
}

std::vector<std::string> gguf_paths(const std::string& path) {
  const std::string file = file_of(path);
  const auto name = part_name(file);
  return name ? name->all() : std::vector<std::string>{file};
}

GgufFiles::GgufFiles(const std::string& path, GgufScope scope) {
  std::vector<std::string> paths = gguf_paths(path);
  // A file whose name has the form of a part's may be whole nevertheless.
  const std::string given = fs::is_directory(path) || !fs::exists(path) ? paths.front() : path;
  files_.push_back(std::make_unique<MappedFile>(given));
  header_ = std::make_unique<GgufHeader>(files_.front()->bytes(), given);
  const int64_t count = parts_of(*header_);
  if (count == 1) return;
  const int64_t number = 1 + header_->integer_or("split.no", 0, count - 1, 0);
  if (!part_name(given)) {
    throw InputError(fmt::format(
        "{}: the file is part {} of {}; its name has to end in -{:05}-of-{:05}.gguf, so that the "
        "other parts are found beside it",
        given, number, count, number, count));
  }
  if (static_cast<int64_t>(paths.size()) != count) {
    throw InputError(fmt::format("{}: split.count = {}, but the file's name says {} parts", given,
                                 count, paths.size()));
  }
  if (given != paths.front()) {
    if (!fs::exists(paths.front())) {
      throw InputError(
          fmt::format("{}: the file is missing; it is part 1 of {}, which {} belongs to",
                      paths.front(), count, given));
    }
    files_.front() = std::make_unique<MappedFile>(paths.front());
    header_ = std::make_unique<GgufHeader>(files_.front()->bytes(), paths.front());
  }
  if (scope == GgufScope::kAll) add_parts(paths);
}

void GgufFiles::add_parts(const std::vector<std::string>& paths) {
  const auto count = static_cast<int64_t>(paths.size());
  const auto check = [&](const GgufHeader& part, int64_t index) {
    if (parts_of(part) != count)
      part.fail("split.count", fmt::format("{}, as in {}", count, paths[0]));
    if (part.integer_or("split.no", 0, kMaxParts, 0) != index) {
      part.fail("split.no", fmt::format("{}, because the file's name says so", index));
    }
  };
  check(*header_, 0);
  for (int64_t index = 1; index < count; ++index) {
    const std::string& path = paths[static_cast<size_t>(index)];
    if (!fs::exists(path)) {
      throw InputError(fmt::format("{}: the file is missing; it is part {} of {} of the model",
                                   path, index + 1, count));
    }
    files_.push_back(std::make_unique<MappedFile>(path));
    GgufHeader part(files_.back()->bytes(), path);
    check(part, index);
    header_->add_part(std::move(part), static_cast<uint32_t>(index));
  }
  constexpr const char* kTensors = "split.tensors.count";
  const auto found = static_cast<int64_t>(header_->tensors().size());
  if (header_->integer_or(kTensors, 0, INT32_MAX, found) != found) {
    header_->fail(kTensors, fmt::format("{}, the number of tensors in all {} parts", found, count));
  }
}

}  // namespace fasa
