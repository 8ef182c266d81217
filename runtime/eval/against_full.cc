#include "runtime/eval/against_full.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "runtime/eval/stored_records.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

PairedMean paired_mean(std::span<const double> values) {
  PairedMean mean;
  for (const double value : values) mean.value += value / static_cast<double>(values.size());
  mean.interval = mean_interval(values);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  mean.low = *low;
  mean.high = *high;
  return mean;
}

// Converts logarithms of ratios to ratios minus 1.
PairedMean as_change(PairedMean mean) {
  for (double* value :
       {&mean.value, &mean.interval.low, &mean.interval.high, &mean.low, &mean.high}) {
    *value = std::expm1(*value);
  }
  return mean;
}

// The points of an example's answers, each 0 to 1; empty if it has no answers or no scores yet.
std::vector<double> points_of(const Json& record) {
  std::vector<double> points;
  if (record.contains("questions")) {
    for (const Json& question : record.at("questions")) {
      points.push_back(question.at("score").get<double>());
    }
  } else if (record.contains("score")) {
    points.push_back(record.at("score").get<double>() / 100);
  }
  return points;
}

// Pairs of answers to the same questions.
class PairedPoints {
 public:
  void add(const std::vector<double>& method, const std::vector<double>& full) {
    for (size_t i = 0; i < std::min(method.size(), full.size()); ++i) {
      lost_ += std::max(0.0, full[i] - method[i]);
      gained_ += std::max(0.0, method[i] - full[i]);
      full_ += full[i];
      ++asked_;
    }
  }
  std::optional<Retained> retained() const {
    if (full_ <= 0) return std::nullopt;
    return Retained{1 - (lost_ - gained_) / full_, retained_interval(lost_, gained_, full_, asked_),
                    full_, asked_};
  }
  bool empty() const { return asked_ == 0; }

 private:
  double lost_ = 0, gained_ = 0, full_ = 0, asked_ = 0;
};

// Pairs of distributions: each list has a mean per example.
struct PairedSteps {
  std::vector<double> kl, same, losses;

  // Returns the number of tokens.
  int64_t add(const Json& method, const Json& full) {
    const Json& count = method.at(method.contains("scored_tokens") ? "scored_tokens" : "tokens");
    const auto tokens = count.get<double>();
    if (!method.contains("kl") || tokens < 1) return 0;
    kl.push_back(method.at("kl").get<double>() / tokens);
    same.push_back(method.at("same_best").get<double>() / tokens);
    losses.push_back((method.at("nll").get<double>() - full.at("nll").get<double>()) / tokens);
    return count.get<int64_t>();
  }
  void write(AgainstFull& against) const {
    against.kl = paired_mean(kl);
    against.kl.interval.low = std::max(0.0, against.kl.interval.low);
    against.same_best = paired_mean(same);
    against.same_best.interval.low = std::max(0.0, against.same_best.interval.low);
    against.same_best.interval.high = std::min(1.0, against.same_best.interval.high);
    against.perplexity = as_change(paired_mean(losses));
  }
};

std::optional<AgainstFull> compared(std::span<const Json> method, std::span<const Json> full) {
  std::map<std::string, const Json*> by_id;
  for (const Json& record : full) by_id[record.at("id").get<std::string>()] = &record;
  AgainstFull against;
  PairedSteps steps;
  PairedPoints points;
  for (const Json& record : method) {
    const auto found = by_id.find(record.at("id").get<std::string>());
    if (found == by_id.end()) continue;
    const int64_t tokens = steps.add(record, *found->second);
    const auto own = points_of(record);
    points.add(own, points_of(*found->second));
    against.tokens += tokens;
    against.examples += tokens > 0 || !own.empty() ? 1 : 0;
  }
  if (against.tokens == 0 && points.empty()) return std::nullopt;
  if (against.tokens > 0) steps.write(against);
  against.retained = points.retained();
  return against;
}

}  // namespace

std::optional<AgainstFull> against_full(std::span<const Json> method, std::span<const Json> full) {
  return from_stored_records([&] { return compared(method, full); });
}

}  // namespace fasa
