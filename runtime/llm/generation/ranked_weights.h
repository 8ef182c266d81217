// Softmax weights of logits in the order in which a sampler draws, without sorting a vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace fasa {

// The best logit that is no NaN; -infinity if there is none.
float best_logit(std::span<const float> logits);

// Weights exp((logit - best) / temperature) in descending order, lowest id first among equals. One
// pass puts tokens into bins of nearly equal weight and sums these; only the bins in which a cut or
// a draw ends are sorted by token. Tokens of less than exp(-64) count as impossible. The results
// are equal on every machine.
class RankedWeights {
 public:
  struct Found {
    int32_t id;
    double mass;  // sum of the weights of this token and of all before it
  };

  // Logits [vocab], kept until the next call; NaN counts as -infinity. Returns false if the best
  // one is infinite, so that there is no distribution.
  bool rank(std::span<const float> logits, double temperature);

  // Masses: the sum of all weights; of the best `count` tokens; of those with at least `weight`,
  // where the best one's is 1.
  double total() const { return total_; }
  double mass_of_best(size_t count);
  double mass_from(double weight);
  // The first token at which the running sum is above `mass`, or has reached it; else the last one.
  Found above(double mass) { return find(mass, false); }
  Found reaching(double mass) { return find(mass, true); }

 private:
  using Token = std::pair<float, int32_t>;

  void fill_bins();
  double weight_of(float logit) const;
  const std::vector<Token>& tokens_of(size_t first, size_t last);
  double mass_before(size_t bin) const;
  Found find(double mass, bool reached);

  std::span<const float> logits_;
  double best_ = 0;
  double temperature_ = 1;
  double bins_per_logit_ = 0;
  double bin_width_ = 0;  // in units of logit / temperature
  double total_ = 0;
  std::vector<uint16_t> bins_;  // [vocab]
  std::vector<double> masses_;  // sum of weights by bin
  std::vector<Token> tokens_;   // of the bins looked at last, sorted
};

}  // namespace fasa
