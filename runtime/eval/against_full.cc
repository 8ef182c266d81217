#include "runtime/eval/against_full.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

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

}  // namespace

std::optional<AgainstFull> against_full(std::span<const Json> method, std::span<const Json> full) {
  std::map<std::string, const Json*> by_id;
  for (const Json& record : full) by_id[record.at("id").get<std::string>()] = &record;
  AgainstFull against;
  std::vector<double> kl, same, losses;
  for (const Json& record : method) {
    const auto found = by_id.find(record.at("id").get<std::string>());
    if (found == by_id.end() || !record.contains("kl")) continue;
    const auto tokens = record.at("tokens").get<double>();
    kl.push_back(record.at("kl").get<double>() / tokens);
    same.push_back(record.at("same_best").get<double>() / tokens);
    losses.push_back((record.at("nll").get<double>() - found->second->at("nll").get<double>()) /
                     tokens);
    against.tokens += record.at("tokens").get<int64_t>();
    ++against.examples;
  }
  if (against.examples == 0) return std::nullopt;
  against.kl = paired_mean(kl);
  against.kl.interval.low = std::max(0.0, against.kl.interval.low);
  against.same_best = paired_mean(same);
  against.same_best.interval.low = std::max(0.0, against.same_best.interval.low);
  against.same_best.interval.high = std::min(1.0, against.same_best.interval.high);
  against.perplexity = as_change(paired_mean(losses));
  return against;
}

}  // namespace fasa
