#include "runtime/eval/json_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
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

}  // namespace

JsonLines read_json_lines(const std::string& path, const std::vector<std::string>& required) {
  const std::string text = read_file(path, kDataFile);
  JsonLines result;
  size_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", path, number);
    try {
      nlohmann::json object = parse_json(line, place);
      const std::string problem = problem_of(object, required);
      if (!problem.empty()) throw InputError(fmt::format("{}: {}", place, problem));
      result.lines.push_back({number, std::move(object)});
    } catch (const InputError& error) {
      result.problems.push_back(fmt::format("{}; left out", error.what()));
    }
  }
  return result;
}

}  // namespace fasa
