#include "runtime/eval/perplexity.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/eval/decode_run.h"
#include "runtime/eval/step_scores.h"

namespace fasa {
void PerplexityOptions::validate(int64_t max_positions) const {
  require(context >= 2 && context <= max_positions, "--context", context,
          fmt::format("2 to {}, the number of positions of the model", max_positions));
  require(stride >= 1 && stride < context, "--stride", stride,
          fmt::format("1 to {}, less than the context ({} tokens)", context - 1, context));
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

std::span<const int32_t> PerplexityTask::tokens(size_t example) const {
  const Window& window = windows_[example];
  return std::span<const int32_t>(texts_[window.text].ids)
      .subspan(static_cast<size_t>(window.first), static_cast<size_t>(options_.context) + 1);
}

nlohmann::json PerplexityTask::about(size_t example) const {
  const Window& window = windows_[example];
  return {{"text", texts_[window.text].describe().at("file")},
          {"first", window.first},
          {"tokens", options_.stride}};
}

nlohmann::json PerplexityTask::run(size_t example, const EvalTarget& target) {
  const std::span<const int32_t> ids = tokens(example);
  const auto prefilled = static_cast<size_t>(options_.context - options_.stride);
  DecodeRun decode(target.model, target.runtime, options_.context, target.prompt);
  decode.prefill(ids.first(prefilled));
  StepScores scores(target);
  for (size_t at = prefilled; at + 1 < ids.size();) {
    const size_t count =
        options_.one_pass ? std::min(static_cast<size_t>(decode.most()), ids.size() - 1 - at) : 1;
    const std::span<const float> logits = decode.steps(ids.subspan(at, count));
    const size_t width = logits.size() / count;
    for (size_t i = 0; i < count; ++i, ++at) {
      scores.add(logits.subspan(i * width, width), ids[at + 1]);
    }
  }
  nlohmann::json record = about(example);
  scores.write(record);
  return record;
}

}  // namespace fasa
