#include "runtime/eval/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/io/hash.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

// The reason for skipping the line; "" if it is valid.
std::string problem_of(const nlohmann::json& object, const std::vector<std::string>& required) {
  if (!object.is_object()) return "not a JSON object";
  const auto missing = std::find_if(required.begin(), required.end(), [&](const std::string& key) {
    return !object.contains(key) || object.at(key).is_null();
  });
  return missing == required.end() ? "" : fmt::format("\"{}\" is missing", *missing);
}

// Throws InputError for an object that lacks a member.
void take(JsonLines& result, nlohmann::json object, size_t number, const std::string& place,
          const std::vector<std::string>& required) {
  const std::string problem = problem_of(object, required);
  if (!problem.empty()) throw InputError(fmt::format("{}: {}", place, problem));
  result.lines.push_back({number, std::move(object)});
}

// The lines of a text with their numbers; empty ones left out.
std::vector<std::pair<size_t, std::string>> lines_of(const std::string& text) {
  std::vector<std::pair<size_t, std::string>> lines;
  size_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") != std::string::npos) {
      lines.emplace_back(number, std::move(line));
    }
  }
  return lines;
}

}  // namespace

JsonLines read_json_lines(const std::string& path, const std::vector<std::string>& required) {
  const std::string text = read_file(path, kDataFile);
  JsonLines result;
  const auto try_line = [&](size_t number, auto parse) {
    const std::string place = fmt::format("{}:{}", path, number);
    try {
      take(result, parse(place), number, place, required);
    } catch (const InputError& error) {
      result.problems.push_back(fmt::format("{}; left out", error.what()));
    }
  };
  if (path.ends_with(".json")) {
    nlohmann::json list = parse_json(text, path);
    if (!list.is_array()) throw InputError(fmt::format("{}: not a list of objects", path));
    for (size_t i = 0; i < list.size(); ++i) {
      try_line(i + 1, [&](const std::string&) { return std::move(list[i]); });
    }
  } else {
    for (const auto& numbered : lines_of(text)) {
      const std::string& line = numbered.second;
      try_line(numbered.first, [&](const std::string& place) { return parse_json(line, place); });
    }
  }
  return result;
}

JsonLines usable_lines(const std::string& path, const std::vector<std::string>& required) {
  JsonLines lines = read_json_lines(path, required);
  if (!lines.lines.empty()) return lines;
  throw InputError(fmt::format("{}: no line of the file is usable{}", path,
                               lines.problems.empty() ? "" : "; " + lines.problems.front()));
}

std::string content_hash(const std::string& path) {
  return fmt::format("fnv1a:{:016x}", fnv1a(read_file(path, kDataFile)));
}

}  // namespace fasa
