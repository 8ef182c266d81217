// Results of cases in a JSON file, kept whole after each case, so that an interrupted run can be
// continued.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/output_file.h"

namespace fasa::bench {

inline constexpr char kNoTime[] = "no time left";

class Results {
 public:
  // `file`: results of an earlier run, if it exists; "" = none, and nothing is written.
  explicit Results(std::string file) : file_(std::move(file)) {
    if (!file_.empty() && std::filesystem::exists(file_)) {
      report_ = nlohmann::json::parse(read_file(file_), nullptr, false);
      if (!report_.is_object()) throw InputError(fmt::format("{}: not a JSON object", file_));
    }
    if (!report_.contains("results")) report_["results"] = nlohmann::json::object();
    report_["skipped"] = nlohmann::json::object();
  }

  bool contains(const char* key) const { return report_.contains(key); }
  const nlohmann::json& at(const char* key) const { return report_.at(key); }
  void set(const char* key, nlohmann::json value) {
    report_[key] = std::move(value);
    write();
  }

  bool has(const std::string& name) const { return report_.at("results").contains(name); }
  const nlohmann::json& of(const std::string& name) const { return report_.at("results").at(name); }
  void add(const std::string& name, nlohmann::json result) {
    report_["results"][name] = std::move(result);
    write();
  }
  void skip(const std::string& name, const std::string& reason) {
    report_["skipped"][name] = reason;
    write();
  }
  void print_skipped() const {
    for (const auto& [name, reason] : report_.at("skipped").items()) {
      fmt::print("{:32} skipped: {}\n", name, reason.get<std::string>());
    }
  }

 private:
  void write() const {
    if (!file_.empty()) write_file_atomically(file_, report_.dump(2) + "\n");
  }

  const std::string file_;
  nlohmann::json report_ = nlohmann::json::object();
};

// True if `parts` is empty or the name contains one of them.
inline bool chosen(const std::vector<std::string>& parts, const std::string& name) {
  return parts.empty() || std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace fasa::bench
