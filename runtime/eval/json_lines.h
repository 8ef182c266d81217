// Files of one JSON object a line.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fasa {

struct JsonLine {
  size_t number = 0;  // counted from 1
  nlohmann::json object;
};

struct JsonLines {
  std::vector<JsonLine> lines;
  std::vector<std::string> problems;  // "file:line: why", of lines left out
};

// Empty lines don't count. A line that is no JSON object, or lacks one of the `required` members,
// is left out and named. Throws InputError for a file that cannot be read.
JsonLines read_json_lines(const std::string& path, const std::vector<std::string>& required);

}  // namespace fasa
