// Retrieval of facts planted in a text at given depths, in the form of needle.json.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "runtime/eval/eval_text.h"
#include "runtime/eval/tasks/needle_template.h"
#include "runtime/eval/tasks/needle_text.h"
#include "runtime/eval/tasks/question_task.h"

namespace fasa {

struct NeedleOptions {
  QuestionOptions question = {};
  int facts = 4;  // per example
  // Depths of facts, as the share of the text before them. An example takes `facts` of them, evenly
  // spaced in the list; the next example takes those after them.
  std::vector<double> depths = {0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875};
  int examples = 25;
  uint64_t seed = 1;
  // Throws UsageError naming the flag, what was given and what is allowed.
  void validate(int64_t max_positions) const;
};

class NeedleTask final : public QuestionTask {
 public:
  // `tokenizer` must outlive it. Throws InputError for texts too short, UsageError for a context
  // too short for the facts.
  NeedleTask(std::vector<EvalText> texts, NeedleTemplate needle, const text::TextCoder& tokenizer,
             const NeedleOptions& options);

  nlohmann::json setup() const override;
  size_t examples() const override { return static_cast<size_t>(options_.examples); }
  AskedText make(size_t example) const override;
  double score(const Question& question, std::string_view answer) const override {
    return needle_.is_right(answer, question.references.front()) ? 1 : 0;
  }
  bool is_complete(const Question& /*question*/, std::string_view answer) const override {
    return needle_.is_complete(answer);
  }

 protected:
  std::string title() const override;

 private:
  std::span<const int32_t> haystack(size_t tokens, std::mt19937_64& random) const;
  std::vector<int32_t> planted(std::span<const int32_t> hay, std::span<const Question> questions,
                               std::span<const NeedleFact> facts) const;
  int64_t max_answer_tokens() const;
  std::vector<Question> questions(size_t example, std::span<const NeedleFact> facts) const;
  // Tokens of the questions and answers that a sequence has after the text.
  int64_t tokens_asked(std::span<const Question> questions) const;

  std::vector<EvalText> texts_;
  NeedleTemplate needle_;
  NeedleOptions options_;
};

}  // namespace fasa
