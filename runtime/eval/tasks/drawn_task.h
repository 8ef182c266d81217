// A task whose texts are generated in any length: as much surroundings as the context holds.
#pragma once

#include "runtime/eval/eval_text.h"
#include "runtime/eval/tasks/drawn_texts.h"

namespace fasa {

struct DrawnOptions {
  QuestionOptions question = {};
  int examples = 25;
  int records = 8;  // extract
  uint64_t seed = 1;
};

class DrawnTask final : public QuestionTask {
 public:
  // Throws UsageError for a context too short for the task.
  DrawnTask(const DrawnKind& kind, std::vector<EvalText> texts, const text::TextCoder& tokenizer,
            const DrawnOptions& options);

  nlohmann::json setup() const override;
  size_t examples() const override { return static_cast<size_t>(options_.examples); }
  AskedText make(size_t example) const override;
  double score(const Question& question, std::string_view answer) const override {
    return kind_.score(question.references, answer);
  }

 protected:
  std::string title() const override;

 private:
  void require_fits(size_t example) const;
  DrawnText draw(size_t example, size_t units) const;
  // Tokens of the text, its longest question and that question's answer.
  int64_t tokens_of(const DrawnText& drawn) const;
  int64_t answer_tokens(const Question& question) const;

  const DrawnKind& kind_;
  std::vector<EvalText> texts_;
  Haystack hay_;
  DrawnOptions options_;
};

}  // namespace fasa
