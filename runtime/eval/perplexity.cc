#include "runtime/eval/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/eval/decode_run.h"
#include "runtime/eval/step_logits.h"

namespace fasa {
namespace {

// Sums over the scored steps of a window.
struct Scores {
  double loss = 0;
  double kl = 0;
  int64_t same_best = 0;

  void add(std::span<const float> logits, int32_t next, size_t step, const EvalTarget& target) {
    loss += negative_log_likelihood(logits, next);
    if (target.keep != nullptr) target.keep->add(logits);
    if (target.against == nullptr) return;
    const std::span<const float> reference = target.against->at(step);
    kl += kl_divergence(reference, logits);
    same_best += best_token(reference) == best_token(logits) ? 1 : 0;
  }
};

}  // namespace

void PerplexityOptions::validate(int64_t max_positions) const {
  if (context < 2 || context > max_positions) {
    throw UsageError(
        fmt::format("--context = {}: allowed: 2 to {}, the number of positions of the model",
                    context, max_positions));
  }
  if (stride < 1 || stride >= context) {
    throw UsageError(
        fmt::format("--stride = {}: allowed: 1 to {}, less than the context ({} tokens)", stride,
                    context - 1, context));
  }
}

PerplexityTask::PerplexityTask(std::vector<EvalText> texts, const PerplexityOptions& options)
    : texts_(std::move(texts)), options_(options) {
  const auto windows_of = [&](const EvalText& text) {
    const auto beyond = static_cast<int64_t>(text.ids.size()) - options_.context - 1;
    return beyond < 0 ? int64_t{0} : beyond / options_.stride + 1;
  };
  int64_t most = 0;
  for (const EvalText& text : texts_) {
    if (windows_of(text) == 0) {
      throw InputError(
          fmt::format("{}: the text has {} tokens; a window of {} tokens and the token after it "
                      "need {}; give a longer text, or lower --context",
                      text.path, text.ids.size(), options_.context, options_.context + 1));
    }
    most = std::max(most, windows_of(text));
  }
  for (int64_t i = 0; i < most; ++i) {
    for (size_t text = 0; text < texts_.size(); ++text) {
      if (i < windows_of(texts_[text])) windows_.push_back({text, i * options_.stride});
    }
  }
}

std::string PerplexityTask::name() const { return fmt::format("ppl {}", options_.context); }

nlohmann::json PerplexityTask::setup() const {
  nlohmann::json texts = nlohmann::json::array();
  for (const EvalText& text : texts_) texts.push_back(text.describe());
  return {{"texts", texts}, {"context", options_.context}, {"stride", options_.stride}};
}

std::string PerplexityTask::id(size_t example) const {
  const Window& window = windows_[example];
  return fmt::format("{}@{}", window.text, window.first);
}

nlohmann::json PerplexityTask::run(size_t example, const EvalTarget& target) {
  const Window& window = windows_[example];
  const auto ids =
      std::span<const int32_t>(texts_[window.text].ids)
          .subspan(static_cast<size_t>(window.first), static_cast<size_t>(options_.context) + 1);
  const auto prefilled = static_cast<size_t>(options_.context - options_.stride);
  DecodeRun decode(target.model, target.runtime, options_.context, target.prompt);
  decode.prefill(ids.first(prefilled));
  Scores scores;
  for (size_t at = prefilled; at + 1 < ids.size();) {
    const size_t count =
        options_.one_pass ? std::min(static_cast<size_t>(decode.most()), ids.size() - 1 - at) : 1;
    const std::span<const float> logits = decode.steps(ids.subspan(at, count));
    const size_t width = logits.size() / count;
    for (size_t i = 0; i < count; ++i, ++at) {
      scores.add(logits.subspan(i * width, width), ids[at + 1], at - prefilled, target);
    }
  }
  nlohmann::json record{{"text", texts_[window.text].describe().at("file")},
                        {"first", window.first},
                        {"tokens", options_.stride},
                        {"nll", scores.loss}};
  if (target.against != nullptr) {
    record["kl"] = scores.kl;
    record["same_best"] = scores.same_best;
  }
  return record;
}

double negative_log_likelihood(std::span<const float> logits, int32_t id) {
  const double top = double{*std::max_element(logits.begin(), logits.end())};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - top);
  const double loss = std::log(sum) - (double{logits[static_cast<size_t>(id)]} - top);
  return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
}

}  // namespace fasa
