#include "runtime/lab/eval/json_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

// Why the line is left out; "" where it isn't.
std::string problem_of(const nlohmann::json& object, const std::vector<std::string>& required) {
  if (object.is_discarded()) return "no JSON";
  if (!object.is_object()) return "no JSON object";
  const auto missing = std::find_if(required.begin(), required.end(), [&](const std::string& key) {
    return !object.contains(key) || object.at(key).is_null();
  });
  return missing == required.end() ? "" : fmt::format("\"{}\" is missing", *missing);
}

}  // namespace

JsonLines read_json_lines(const std::string& path, const std::vector<std::string>& required) {
  const std::string text = read_text_file(path);
  JsonLines result;
  size_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    const std::string problem = problem_of(object, required);
    if (problem.empty()) {
      result.lines.push_back({number, std::move(object)});
    } else {
      result.problems.push_back(fmt::format("{}:{}: {}; left out", path, number, problem));
    }
  }
  return result;
}

}  // namespace fasa
