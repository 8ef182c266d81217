#include "runtime/eval/tasks/eval_task.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/eval/stored_records.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

Summary empty(Metric metric) {
  return {.metric = metric, .value = 0, .interval = {}, .examples = 0, .counted = 0};
}

// The interval treats examples as independent: it is exp of the interval of their mean losses.
Summary perplexity_of(std::span<const Json> records) {
  Summary summary = empty(Metric::kPerplexity);
  double loss = 0;
  std::vector<double> means;
  for (const Json& record : records) {
    if (!record.contains("nll")) continue;
    const auto tokens = record.at("tokens").get<int64_t>();
    loss += record.at("nll").get<double>();
    means.push_back(record.at("nll").get<double>() / static_cast<double>(tokens));
    summary.counted += tokens;
  }
  if (summary.counted == 0) return summary;
  summary.value = std::exp(loss / static_cast<double>(summary.counted));
  const Interval interval = mean_interval(means);
  summary.interval = {std::exp(interval.low), std::exp(interval.high)};
  return summary;
}

Summary accuracy_of(std::span<const Json> records) {
  Summary summary = empty(Metric::kAccuracy);
  double right = 0;
  for (const Json& record : records) {
    if (!record.contains("right")) continue;
    right += record.at("right").get<double>();
    summary.counted += record.at("asked").get<int64_t>();
  }
  const auto asked = static_cast<double>(summary.counted);
  summary.interval = wilson_interval(right, asked);
  if (summary.counted > 0) summary.value = right / asked;
  return summary;
}

Summary score_of(std::span<const Json> records) {
  Summary summary = empty(Metric::kScore);
  std::vector<double> scores;
  for (const Json& record : records) {
    if (record.contains("score")) scores.push_back(record.at("score").get<double>());
  }
  summary.counted = static_cast<int64_t>(scores.size());
  summary.interval = mean_interval(scores);
  summary.interval = {std::max(0.0, summary.interval.low), std::min(100.0, summary.interval.high)};
  for (const double score : scores) summary.value += score / static_cast<double>(scores.size());
  return summary;
}

Summary summary_of(Metric metric, std::span<const Json> records) {
  return metric == Metric::kPerplexity ? perplexity_of(records)
         : metric == Metric::kAccuracy ? accuracy_of(records)
                                       : score_of(records);
}

}  // namespace

std::string_view metric_name(Metric metric) {
  switch (metric) {
    case Metric::kPerplexity:
      return "perplexity";
    case Metric::kAccuracy:
      return "accuracy";
    case Metric::kScore:
      break;
  }
  return "score";
}

Summary summarize(Metric metric, std::span<const Json> records) {
  Summary summary = from_stored_records([&] { return summary_of(metric, records); });
  summary.examples = static_cast<int64_t>(records.size());
  return summary;
}

}  // namespace fasa
