// Perplexity by a sliding window: the beginning of each window is prefilled, the rest is decoded
// token by token, and each step's logits are scored on the token that follows. If reference logits
// are given, a record also has "kl" and "same_best", see against_full.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/eval/eval_text.h"
#include "runtime/eval/tasks/eval_task.h"

namespace fasa {

struct PerplexityOptions {
  int64_t context = 4096;  // tokens of a window
  int64_t stride = 1024;   // tokens decoded at a window's end, and the windows' distance
  // Decode as many tokens at once as the runtime allows instead of one by one. The results are
  // bit-identical.
  bool one_pass = false;
  // Throws UsageError naming the flag, what was given and what is allowed.
  void validate(int64_t max_positions) const;
};

// A scored token has context - stride to context - 1 tokens before it in its window; the first
// context - stride tokens of a text are never scored.
class PerplexityTask final : public EvalTask {
 public:
  // Throws InputError for a text too short for one window.
  PerplexityTask(std::vector<EvalText> texts, const PerplexityOptions& options);

  std::string name() const override;
  Metric metric() const override { return Metric::kPerplexity; }
  nlohmann::json setup() const override;
  size_t examples() const override { return windows_.size(); }
  std::string id(size_t example) const override;
  int64_t longest() const override { return options_.context; }
  int64_t compared_steps() const override { return options_.stride; }
  nlohmann::json run(size_t example, const EvalTarget& target) override;

  // The window's tokens and the one after it.
  std::span<const int32_t> tokens(size_t example) const;
  // Members of its record that do not depend on a model: "text", "first", "tokens".
  nlohmann::json about(size_t example) const;

 private:
  struct Window {
    size_t text;
    int64_t first;
  };
  std::vector<EvalText> texts_;
  PerplexityOptions options_;
  std::vector<Window> windows_;  // the first of each text, then the second of each, ...
};

}  // namespace fasa
