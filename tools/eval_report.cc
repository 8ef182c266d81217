#include "tools/eval_report.h"

#include <fmt/format.h>

#include "runtime/config/config_options.h"
#include "tools/help_text.h"

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
  return {{"examples", against.examples},
          {"tokens", against.tokens},
          {"kl", paired_json(against.kl)},
          {"same_best", paired_json(against.same_best)},
          {"perplexity_change", paired_json(against.perplexity)}};
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

namespace {

// One line: KL, same best token, perplexity, with intervals.
std::string against_full_text(const AgainstFull& against) {
  const PairedMean& kl = against.kl;
  const PairedMean& same = against.same_best;
  const PairedMean& change = against.perplexity;
  return fmt::format(
      "against full: KL {:.4f} nats (95 %: {:.4f} to {:.4f}; examples {:.4f} to {:.4f}); "
      "best token the same {:.1f} % ({:.1f} to {:.1f}); perplexity {:+.2f} % ({:+.2f} to {:+.2f})",
      kl.value, kl.interval.low, kl.interval.high, kl.low, kl.high, 100 * same.value,
      100 * same.interval.low, 100 * same.interval.high, 100 * change.value,
      100 * change.interval.low, 100 * change.interval.high);
}

// Recalled facts by depth and length of the text.
Json facts_json(const MethodReport& report) {
  std::map<std::pair<double, int64_t>, std::pair<int64_t, int64_t>> cells;  // right, asked
  for (const TaskResult& task : report.tasks) {
    if (!task.setup.at("task_setup").contains("context")) continue;
    const auto length = task.setup.at("task_setup").at("context").get<int64_t>();
    for (const auto& record : task.records) {
      for (const auto& question : record.value("questions", Json::array())) {
        if (!question.contains("depth")) continue;
        auto& [right, asked] = cells[{question.at("depth").get<double>(), length}];
        right += question.at("right").get<bool>() ? 1 : 0;
        ++asked;
      }
    }
  }
  Json facts = Json::array();
  for (const auto& [at, answers] : cells) {
    facts.push_back({{"depth", at.first},
                     {"context", at.second},
                     {"right", answers.first},
                     {"asked", answers.second}});
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
  if (Json facts = facts_json(report); !facts.empty()) json["facts"] = std::move(facts);
  return json;
}

std::string paragraph(const std::string& text, int indent) {
  return wrapped(text, terminal_columns(), indent, 0) + '\n';
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
  if (report.tasks.size() > 1) text += fmt::format("all: {}\n", value_text(report.total()));
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
