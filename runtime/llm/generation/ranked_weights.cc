#include "runtime/llm/generation/ranked_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace fasa {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kBins = 4096;
constexpr size_t kRest = kBins - 1;  // holds what is impossible
constexpr double kRange = 64;        // of possible weights, as logit / temperature
constexpr size_t kLanes = 16;
constexpr size_t kBlock = 256;

bool better(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// Lanes, so that compilers vectorise.
template <typename Pick>
float reduce(std::span<const float> logits, float start, Pick pick) {
  std::array<float, kLanes> lanes;
  lanes.fill(start);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = pick(lanes[lane], logits[i + lane]);
    }
  }
  for (; i < logits.size(); ++i) lanes[0] = pick(lanes[0], logits[i]);
  for (const float lane : lanes) start = pick(start, lane);
  return start;
}

// The lowest finite logit, infinity if there is none.
float worst_finite(std::span<const float> logits) {
  return reduce(logits, kInfinity,
                [](float a, float b) { return b < a && b > -kInfinity ? b : a; });
}

}  // namespace

float best_logit(std::span<const float> logits) {
  return reduce(logits, -kInfinity, [](float a, float b) { return b > a ? b : a; });
}

double RankedWeights::weight_of(float logit) const {
  return std::exp((static_cast<double>(logit) - best_) / temperature_);
}

bool RankedWeights::rank(std::span<const float> logits, double temperature) {
  logits_ = logits;
  temperature_ = temperature;
  best_ = best_logit(logits);
  if (std::isinf(best_)) return false;
  const double range =
      std::clamp((best_ - static_cast<double>(worst_finite(logits))) / temperature, 1e-9, kRange);
  // The last possible token lies in the middle of the last bin but one.
  bins_per_logit_ = (static_cast<double>(kRest) - 0.5) / (range * temperature);
  bin_width_ = range / (static_cast<double>(kRest) - 0.5);
  fill_bins();
  total_ = mass_before(kRest);
  return true;
}

// A bin's weights are exp(-its begin) times a polynomial of the distance from there, at most 1/64,
// whose error is below 5e-17. The loops are separate so that compilers vectorise them.
void RankedWeights::fill_bins() {
  bins_.resize(logits_.size());
  masses_.assign(kBins, 0);
  std::array<double, kBlock> distance, weight;
  std::array<int32_t, kBlock> bin;
  std::array<float, kBlock> block{};
  constexpr auto kLast = static_cast<double>(kRest);
  for (size_t begin = 0; begin < logits_.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, logits_.size() - begin);
    std::copy_n(logits_.begin() + static_cast<ptrdiff_t>(begin), count, block.begin());
    for (size_t i = 0; i < kBlock; ++i) {
      const double bins = (best_ - static_cast<double>(block[i])) * bins_per_logit_;
      distance[i] = bins < kLast ? bins : kLast;  // NaN: the last one
    }
    for (size_t i = 0; i < kBlock; ++i) bin[i] = static_cast<int32_t>(distance[i]);
    for (size_t i = 0; i < kBlock; ++i) {
      const double r = (static_cast<double>(bin[i]) - distance[i]) * bin_width_;
      weight[i] =
          1 + r * (1 + r * (1.0 / 2 +
                            r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720))))));
    }
    for (size_t i = 0; i < count; ++i) bins_[begin + i] = static_cast<uint16_t>(bin[i]);
    for (size_t i = 0; i < count; ++i) masses_[static_cast<size_t>(bin[i])] += weight[i];
  }
  masses_[kRest] = 0;
  for (size_t i = 0; i < kRest; ++i) {
    if (masses_[i] != 0) masses_[i] *= std::exp(-static_cast<double>(i) * bin_width_);
  }
}

double RankedWeights::mass_before(size_t bin) const {
  double mass = 0;
  for (size_t i = 0; i < bin; ++i) mass += masses_[i];
  return mass;
}

const std::vector<RankedWeights::Token>& RankedWeights::tokens_of(size_t first, size_t last) {
  tokens_.clear();
  const auto wanted = [&](uint16_t bin) { return bin >= first && bin <= last; };
  for (size_t begin = 0; begin < bins_.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, bins_.size());
    int found = 0;
    for (size_t i = begin; i < end; ++i) found += wanted(bins_[i]);
    for (size_t i = begin; found > 0 && i < end; ++i) {
      if (wanted(bins_[i])) tokens_.emplace_back(logits_[i], static_cast<int32_t>(i));
    }
  }
  // Equal logits are in order already.
  if (!std::is_sorted(tokens_.begin(), tokens_.end(), better)) {
    std::sort(tokens_.begin(), tokens_.end(), better);
  }
  return tokens_;
}

double RankedWeights::mass_of_best(size_t count) {
  std::array<uint32_t, kBins> counts{};
  for (const uint16_t bin : bins_) ++counts[bin];
  size_t bin = 0;
  while (bin < kRest && counts[bin] < count) count -= counts[bin++];
  if (bin == kRest) return total_;
  double mass = mass_before(bin);
  for (const Token& token : std::span(tokens_of(bin, bin)).first(count))
    mass += weight_of(token.first);
  return mass;
}

double RankedWeights::mass_from(double weight) {
  const double bins = -std::log(weight) / bin_width_;
  if (!(bins < static_cast<double>(kRest))) return total_;
  // Rounding may place a token of this weight in a bin beside.
  const auto middle = static_cast<size_t>(bins);
  const size_t first = middle == 0 ? 0 : middle - 1;
  double mass = mass_before(first);
  for (const Token& token : tokens_of(first, std::min(middle + 1, kRest - 1))) {
    if (const double own = weight_of(token.first); own >= weight) mass += own;
  }
  return mass;
}

RankedWeights::Found RankedWeights::find(double mass, bool reached) {
  const auto stops = [&](double sum) { return reached ? sum >= mass : sum > mass; };
  double sum = 0;
  size_t bin = 0;
  size_t last = 0;  // the last bin that is not empty
  for (; bin < kRest; ++bin) {
    if (masses_[bin] == 0) continue;
    last = bin;
    if (stops(sum + masses_[bin])) break;
    sum += masses_[bin];
  }
  if (bin == kRest) sum = mass_before(last);
  Found found{0, sum};
  for (const Token& token : tokens_of(last, last)) {
    found = {token.second, found.mass + weight_of(token.first)};
    if (stops(found.mass)) break;
  }
  return found;
}

}  // namespace fasa
