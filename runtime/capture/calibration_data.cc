#include "runtime/capture/calibration_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <random>

#include "runtime/base/error.h"
#include "runtime/capture/probes.h"
#include "runtime/io/hash.h"
#include "runtime/io/input_file.h"
#include "runtime/io/shipped_files.h"

namespace fasa {
namespace {

constexpr std::array<const char*, 3> kTexts = {"ruth.txt", "state-of-the-union-1996.txt",
                                               "revelation.txt"};

std::vector<int32_t> parse_ids(std::string_view text, const std::string& path) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at != end) {
    if (std::string_view(" \t\r\n,[]").find(*at) != std::string_view::npos) {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0) {
      throw InputError(
          fmt::format("{}: byte {} is not a token id; allowed: whole numbers from 0 (the model's "
                      "folder has no tokenizer.json, so calibration texts are given as token ids)",
                      path, at - text.data()));
    }
    ids.push_back(id);
    at = stop;
  }
  return ids;
}

}  // namespace

std::string CalibrationData::hash() const {
  const auto bytes_of = [](const std::vector<int32_t>& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(int32_t));
  };
  return fmt::format("fnv1a:{:016x}", fnv1a(bytes_of(positions), fnv1a(bytes_of(ids))));
}

CalibrationData make_calibration_data(std::span<const int32_t> text, const DataOptions& options) {
  if (text.empty() || options.tokens < 1)
    throw UsageError("the calibration text is empty; give a text of at least one token");
  const int64_t length = std::min<int64_t>(options.tokens, static_cast<int64_t>(text.size()));
  ProbedText probed;
  if (options.probes) {
    probed = plant_probes(text, options.tokens,
                          {.queries = options.queries / 3, .length = 16, .seed = options.seed});
  } else {
    probed.ids.assign(text.begin(), text.begin() + length);
    probed.text_end = length;
  }
  CalibrationData data;
  data.probes = !probed.positions.empty();
  std::vector<int32_t> candidates(static_cast<size_t>(probed.text_end - probed.text_end / 4));
  std::iota(candidates.begin(), candidates.end(), static_cast<int32_t>(probed.text_end / 4));
  std::mt19937_64 random(options.seed + 1);
  std::sample(candidates.begin(), candidates.end(), std::back_inserter(data.positions),
              options.queries - static_cast<int>(probed.positions.size()), random);
  data.positions.insert(data.positions.end(), probed.positions.begin(), probed.positions.end());
  data.ids = std::move(probed.ids);
  return data;
}

std::vector<std::string> default_calibration_texts(const std::string& model_dir) {
  namespace fs = std::filesystem;
  const fs::path model = fs::absolute(model_dir.empty() ? "." : model_dir).lexically_normal();
  // With a trailing slash the file name is empty.
  const fs::path parent =
      model.has_filename() ? model.parent_path() : model.parent_path().parent_path();
  std::vector<fs::path> folders = {parent / "texts"};
  if (const auto shipped = shipped_file("texts")) folders.push_back(*shipped);
  std::error_code error;
  for (const fs::path& folder : folders) {
    std::vector<std::string> paths;
    for (const char* name : kTexts) {
      if (fs::is_regular_file(folder / name, error)) paths.push_back((folder / name).string());
    }
    if (!paths.empty()) return paths;
  }
  throw InputError(
      fmt::format("{}: found no calibration texts (looked for {} and others in {} and beside the "
                  "program); give one with --text FILE",
                  model_dir, kTexts[0], folders.front().string()));
}

std::vector<int32_t> read_calibration_texts(const std::vector<std::string>& paths,
                                            const text::TextCoder* tokenizer, int64_t tokens) {
  std::vector<std::vector<int32_t>> texts;
  for (const std::string& path : paths) {
    FileRule rule = kPromptFile;
    rule.what = "calibration text";
    const std::string bytes = read_file(path, rule);
    texts.push_back(tokenizer != nullptr ? tokenizer->encode(bytes) : parse_ids(bytes, path));
    if (texts.back().empty())
      throw InputError(
          fmt::format("{}: the file is empty; give a text of at least one token", path));
  }
  // Takes the shortest text first, so that the tokens it leaves go to the others; the texts are
  // joined in the order given.
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return texts[a].size() < texts[b].size(); });
  int64_t left = tokens;
  for (size_t i = 0; i < order.size(); ++i) {
    auto& text = texts[order[i]];
    const int64_t share = left / static_cast<int64_t>(order.size() - i);
    text.resize(static_cast<size_t>(std::min<int64_t>(share, static_cast<int64_t>(text.size()))));
    left -= static_cast<int64_t>(text.size());
  }
  std::vector<int32_t> ids;
  for (const auto& text : texts) ids.insert(ids.end(), text.begin(), text.end());
  return ids;
}

}  // namespace fasa
