#include "tools/report/eval_report.h"

#include <fmt/format.h>

#include <map>

#include "runtime/config/config_options.h"
#include "runtime/eval/stored_records.h"
#include "tools/flags/help_text.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

Json summary_json(const Summary& summary) {
  Json json{{std::string(metric_name(summary.metric)), summary.value},
            {"interval", {summary.interval.low, summary.interval.high}},
            {"examples", summary.examples}};
  if (summary.metric == Metric::kPerplexity) json["tokens"] = summary.counted;
  if (summary.metric == Metric::kAccuracy) json["questions"] = summary.counted;
  return json;
}

std::string value_text(const Summary& summary) {
  const double scale = summary.metric == Metric::kAccuracy ? 100 : 1;
  const int digits = summary.metric == Metric::kPerplexity ? 4 : 1;
  const std::string_view unit = summary.metric == Metric::kAccuracy ? " %" : "";
  return fmt::format("{:.{}f}{} (95 %: {:.{}f} to {:.{}f})", summary.value * scale, digits, unit,
                     summary.interval.low * scale, digits, summary.interval.high * scale, digits);
}

Json paired_json(const PairedMean& mean) {
  return {{"mean", mean.value},
          {"interval", {mean.interval.low, mean.interval.high}},
          {"range", {mean.low, mean.high}}};
}

Json against_json(const AgainstFull& against) {
  Json json{{"examples", against.examples}, {"tokens", against.tokens}};
  if (against.tokens > 0) {
    json["kl"] = paired_json(against.kl);
    json["same_best"] = paired_json(against.same_best);
    json["perplexity_change"] = paired_json(against.perplexity);
  }
  if (against.retained) {
    const Retained& retained = *against.retained;
    json["retained"] = {{"mean", retained.value},
                        {"interval", {retained.interval.low, retained.interval.high}},
                        {"full", retained.full},
                        {"asked", retained.asked}};
  }
  return json;
}

std::string counted_text(const Summary& summary) {
  std::string text = fmt::format("{} examples", summary.examples);
  if (summary.metric == Metric::kPerplexity) text += fmt::format(", {} tokens", summary.counted);
  if (summary.metric == Metric::kAccuracy) text += fmt::format(", {} questions", summary.counted);
  return text;
}

}  // namespace

Summary MethodReport::total() const {
  const Metric metric = tasks.front().summary.metric;
  std::vector<Json> records;
  for (const TaskResult& one : tasks) {
    if (metric == Metric::kScore && tasks.size() > 1) {
      if (one.summary.counted > 0) records.push_back(Json{{"score", one.summary.value}});
    } else {
      records.insert(records.end(), one.records.begin(), one.records.end());
    }
  }
  Summary summary = summarize(metric, records);
  summary.examples = 0;
  for (const TaskResult& one : tasks) summary.examples += one.summary.examples;
  return summary;
}

void compare_totals(EvalReport& report, std::optional<size_t> full) {
  // Ids are unique within a task alone.
  const auto records_of = [](const MethodReport& method) {
    std::vector<Json> records;
    for (size_t task = 0; task < method.tasks.size(); ++task) {
      for (Json record : method.tasks[task].records) {
        record["id"] = fmt::format("{}:{}", task, record.at("id").get<std::string>());
        records.push_back(std::move(record));
      }
    }
    return records;
  };
  if (!full || report.methods[*full].tasks.size() < 2) return;
  const auto reference = records_of(report.methods[*full]);
  for (size_t i = 0; i < report.methods.size(); ++i) {
    if (i == *full) continue;
    report.methods[i].against_full = against_full(records_of(report.methods[i]), reference);
  }
}

namespace {

std::string range_text(double value, const Interval& interval, std::string_view unit) {
  return fmt::format("{:.1f}{} (95 %: {:.1f} to {:.1f})", 100 * value, unit, 100 * interval.low,
                     100 * interval.high);
}

std::string retained_text(const Retained& retained) {
  const bool within = retained.interval.low <= 1 && retained.interval.high >= 1;
  return fmt::format("keeps {} of {:.4g} right answers{}",
                     range_text(retained.value, retained.interval, " %"), retained.full,
                     within ? ", no difference shown" : "");
}

// One line: answers kept, KL, same best token, perplexity, with intervals.
std::string against_full_text(const AgainstFull& against) {
  std::vector<std::string> parts;
  if (against.retained) parts.push_back(retained_text(*against.retained));
  if (against.tokens > 0) {
    const PairedMean& kl = against.kl;
    const PairedMean& change = against.perplexity;
    parts.push_back(
        fmt::format("KL {:.4f} nats (95 %: {:.4f} to {:.4f}; examples {:.4f} to {:.4f})", kl.value,
                    kl.interval.low, kl.interval.high, kl.low, kl.high));
    parts.push_back("best token the same " +
                    range_text(against.same_best.value, against.same_best.interval, " %"));
    parts.push_back(fmt::format("perplexity {:+.2f} % ({:+.2f} to {:+.2f})", 100 * change.value,
                                100 * change.interval.low, 100 * change.interval.high));
  }
  return parts.empty() ? "full attention has no right answer"
                       : fmt::format("against full: {}", fmt::join(parts, "; "));
}

struct Points {
  double right = 0;
  int64_t asked = 0;
};

// Points of the questions that have a key: key(task, question) returns one or nothing.
template <typename Key, typename Find>
std::map<Key, Points> points_by(const MethodReport& report, Find key) {
  std::map<Key, Points> cells;
  const auto add = [&](const TaskResult& task, const Json& question) {
    const std::optional<Key> found = key(task, question);
    if (!found) return;
    cells[*found].right += question.at("score").get<double>();
    ++cells[*found].asked;
  };
  return from_stored_records([&] {
    for (const TaskResult& task : report.tasks) {
      for (const auto& record : task.records) {
        for (const auto& question : record.value("questions", Json::array())) add(task, question);
      }
    }
    return cells;
  });
}

std::map<int64_t, Points> points_by_turn(const MethodReport& report) {
  return points_by<int64_t>(report, [](const TaskResult& /*task*/, const Json& question) {
    return question.contains("turn") ? std::optional(question.at("turn").get<int64_t>())
                                     : std::nullopt;
  });
}

Json turns_json(const MethodReport& report) {
  Json turns = Json::array();
  for (const auto& [turn, points] : points_by_turn(report)) {
    turns.push_back({{"turn", turn}, {"right", points.right}, {"asked", points.asked}});
  }
  return turns;
}

std::string turns_text(const MethodReport& report) {
  std::vector<std::string> shares;
  for (const auto& [turn, points] : points_by_turn(report)) {
    shares.push_back(fmt::format("{:.1f}", 100 * points.right / static_cast<double>(points.asked)));
  }
  return shares.empty() ? "" : fmt::format("by turn: {} %\n", fmt::join(shares, ", "));
}

// Recalled facts by depth and length of the text.
Json facts_json(const MethodReport& report) {
  using Place = std::pair<double, int64_t>;
  const auto place = [](const TaskResult& task, const Json& question) -> std::optional<Place> {
    const Json& setup = task.setup.at("task_setup");
    if (!setup.contains("context") || !question.contains("depth")) return std::nullopt;
    return Place{question.at("depth").get<double>(), setup.at("context").get<int64_t>()};
  };
  Json facts = Json::array();
  for (const auto& [at, points] : points_by<Place>(report, place)) {
    facts.push_back({{"depth", at.first},
                     {"context", at.second},
                     {"right", points.right},
                     {"asked", points.asked}});
  }
  return facts;
}

Json method_json(const MethodReport& report) {
  Json json = summary_json(report.total());
  json["method"] = report.method;
  json["config"] = config_to_json(report.config);
  Json tasks = Json::array();
  for (const TaskResult& task : report.tasks) {
    Json one = summary_json(task.summary);
    one["task"] = task.task;
    one["resumed"] = task.resumed;
    one["seconds"] = task.seconds;
    one["results"] = task.path;
    if (task.against_full) one["against_full"] = against_json(*task.against_full);
    tasks.push_back(std::move(one));
  }
  json["tasks"] = tasks;
  if (report.against_full) json["against_full"] = against_json(*report.against_full);
  if (Json facts = facts_json(report); !facts.empty()) json["facts"] = std::move(facts);
  if (Json turns = turns_json(report); !turns.empty()) json["turns"] = std::move(turns);
  return json;
}

std::string method_text(const MethodReport& report) {
  std::string text;
  for (const TaskResult& task : report.tasks) {
    text += paragraph(
        fmt::format("{}: {} {}; {}{}", task.task, metric_name(task.summary.metric),
                    value_text(task.summary), counted_text(task.summary),
                    task.resumed > 0 ? fmt::format(", {} from before", task.resumed) : ""),
        2);
    if (task.against_full) text += paragraph("  " + against_full_text(*task.against_full), 4);
  }
  text += turns_text(report);
  if (report.tasks.size() > 1) text += fmt::format("all: {}\n", value_text(report.total()));
  if (report.against_full) text += paragraph("  " + against_full_text(*report.against_full), 4);
  return text;
}

}  // namespace

Json to_json(const EvalReport& report) {
  Json json = Json::object();
  if (report.methods.size() == 1) {
    json = method_json(report.methods.front());
  } else {
    json["methods"] = Json::array();
    for (const MethodReport& method : report.methods) {
      json["methods"].push_back(method_json(method));
    }
  }
  json["task"] = report.task;
  json["model"] = report.model;
  json["skipped_lines"] = report.skipped;
  json["notes"] = report.notes;
  return json;
}

std::string to_table(const EvalReport& report) {
  std::string text;
  for (const MethodReport& method : report.methods) {
    text += paragraph(fmt::format("{}, {}", report.model, method.method), 2) + method_text(method);
  }
  for (const std::string& note : report.notes) text += paragraph(note, 2);
  return text;
}

}  // namespace fasa
