#include "tools/report/eval_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "tools/report/eval_scores.h"
#include "tools/report/text_table.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

struct Cell {
  Summary summary;
};

// Ordered by task; each setup of a task is a column.
struct Column {
  std::string name;
  std::string setup;
  auto operator<=>(const Column&) const = default;
};

Metric metric_of(const std::string& name) {
  for (const Metric metric : {Metric::kPerplexity, Metric::kAccuracy}) {
    if (metric_name(metric) == name) return metric;
  }
  return Metric::kScore;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string cell_text(const Summary& summary, int64_t most) {
  if (summary.counted == 0) return "-";
  const double scale = summary.metric == Metric::kAccuracy ? 100 : 1;
  return fmt::format("{:.{}f}{}", summary.value * scale,
                     summary.metric == Metric::kPerplexity ? 4 : 1,
                     summary.examples < most ? "*" : "");
}

class Results {
 public:
  void add(const ResultFile& file) {
    const Column column{file.setup.at("task").get<std::string>(),
                        file.setup.at("task_setup").dump()};
    const Summary summary =
        summarize(metric_of(file.setup.at("metric").get<std::string>()), file.records);
    cells_[file.setup.at("method").get<std::string>()].emplace(column, summary);
    int64_t& most = max_[column];
    most = std::max(most, summary.examples);
  }

  std::string table() const {
    std::vector<std::string> titles{"method"};
    for (const auto& [column, most] : max_) titles.push_back(column.name);
    TextTable table(titles);
    bool partial = false;
    for (const auto& [method, cells] : cells_) {
      std::vector<std::string> row{method};
      for (const auto& [column, most] : max_) {
        const auto found = cells.find(column);
        row.push_back(found == cells.end() ? "-" : cell_text(found->second, most));
        partial = partial || row.back().ends_with('*');
      }
      table.add(row);
    }
    const std::string text = table.text();
    return partial ? text + "* fewer examples than other entries of the column\n" : text;
  }

 private:
  std::map<std::string, std::map<Column, Summary>> cells_;  // by method
  std::map<Column, int64_t> max_;                           // examples of the fullest cell
};

}  // namespace

std::string results_table(const std::string& folder, const std::string& model_hash) {
  Results results;
  for (const std::string& path : files_in(folder)) {
    try {
      ResultFile file = read_results(path);
      add_scores(path, file.records);
      if (file.setup.value("model_hash", "") == model_hash) results.add(file);
    } catch (const Error& error) {
      log_warning(fmt::format("not in the table: {}", error.what()));
    } catch (const Json::exception& error) {
      log_warning(fmt::format("not in the table: {}: {}", path, error.what()));
    }
  }
  return results.table();
}

}  // namespace fasa
