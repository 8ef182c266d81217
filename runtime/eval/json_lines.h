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
  std::vector<std::string> problems;  // "file:line: reason" of skipped lines
};

// A file NAME.json holds a list of the objects instead; they count as lines. Ignores empty lines.
// Skips and reports lines that are no JSON object or lack one of the `required` members. Throws
// InputError for a file that cannot be read.
JsonLines read_json_lines(const std::string& path, const std::vector<std::string>& required);

// The same, but a file without a usable line is an error too.
JsonLines usable_lines(const std::string& path, const std::vector<std::string>& required);

// "fnv1a:...", of the file's bytes.
std::string content_hash(const std::string& path);

}  // namespace fasa
