#include "runtime/eval/tasks/drawn_task.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/eval/answer_run.h"
#include "runtime/io/hash.h"

namespace fasa {

DrawnTask::DrawnTask(const DrawnKind& kind, std::vector<EvalText> texts,
                     const text::TextCoder& tokenizer, const DrawnOptions& options)
    : QuestionTask(tokenizer, options.question),
      kind_(kind),
      texts_(std::move(texts)),
      hay_(Haystack::of_texts(texts_)),
      options_(options) {
  require_fits(0);
}

void DrawnTask::require_fits(size_t example) const {
  const int64_t least = tokens_of(draw(example, kind_.min_units));
  if (least <= longest()) return;
  throw UsageError(
      fmt::format("--context = {}: too short for {}, whose shortest text with its question and "
                  "answer has {} tokens; allowed: {} or more",
                  longest(), title(), least, least));
}

std::string DrawnTask::title() const {
  const std::string records =
      &kind_ == &extract_kind() ? fmt::format(" of {}", options_.records) : "";
  return fmt::format("{}{} {}", kind_.name, records, longest());
}

nlohmann::json DrawnTask::setup() const {
  nlohmann::json setup = QuestionTask::setup();
  nlohmann::json texts = nlohmann::json::array();
  for (const EvalText& text : texts_) texts.push_back(text.describe());
  setup.update({{"kind", kind_.name},
                {"texts", texts},
                {"seed", options_.seed},
                {"records", options_.records},
                // Changes with the wording.
                {"form", fnv1a(draw(0, kind_.min_units).text)}});
  return setup;
}

DrawnText DrawnTask::draw(size_t example, size_t units) const {
  std::seed_seq seeds{options_.seed, static_cast<uint64_t>(example),
                      static_cast<uint64_t>(longest())};
  std::mt19937_64 random(seeds);
  return kind_.draw(kind_, {random, units, longest(), hay_, options_.records});
}

// Half as much again as the right answer, and some blanks and words before it.
int64_t DrawnTask::answer_tokens(const Question& question) const {
  return std::ssize(ids_behind(question.answer)) * 3 / 2 + 16;
}

int64_t DrawnTask::tokens_of(const DrawnText& drawn) const {
  int64_t behind = 0;
  for (const Question& question : drawn.questions) {
    behind = std::max(behind, std::ssize(ids_behind(question.text)) + answer_tokens(question));
  }
  return std::ssize(encode_prompt(tokenizer(), drawn.text)) + behind;
}

AskedText DrawnTask::make(size_t example) const {
  require_fits(example);
  size_t fits = kind_.min_units, beyond = std::max<size_t>(16, 2 * fits);
  const auto fitting = [&](size_t units) { return tokens_of(draw(example, units)) <= longest(); };
  while (fitting(beyond)) {
    fits = beyond;
    beyond *= 2;
  }
  while (beyond - fits > 1) {
    const size_t middle = fits + (beyond - fits) / 2;
    (fitting(middle) ? fits : beyond) = middle;
  }
  DrawnText drawn = draw(example, fits);
  for (Question& question : drawn.questions) question.answer_tokens = answer_tokens(question);
  return {encode_prompt(tokenizer(), drawn.text), std::move(drawn.questions)};
}

}  // namespace fasa
