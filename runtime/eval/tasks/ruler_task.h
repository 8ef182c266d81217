// A task of RULER (arXiv 2404.06654) from files that its own scripts wrote.
#pragma once

#include <string>
#include <vector>

#include "runtime/eval/json_lines.h"
#include "runtime/eval/tasks/question_task.h"

namespace fasa {

// Where the question of an input begins, at the end of which `answer_prefix` may follow: the line
// with the last question mark or with "Question:"; 0 if there is neither.
size_t ruler_question(std::string_view input);

class RulerTask final : public QuestionTask {
 public:
  // Reads the first `examples` lines of a file with `input`, `outputs` and perhaps `answer_prefix`;
  // or with `context`, `question` and `answer`, as they are published too. Longer ones than the
  // context holds are problems. Its context is then what the longest takes. `tokenizer` must
  // outlive it. Throws InputError for a file without a usable line.
  RulerTask(const std::string& path, std::string dataset, const text::TextCoder& tokenizer,
            const QuestionOptions& options, size_t examples);

  nlohmann::json setup() const override;
  size_t examples() const override { return lines_.lines.size(); }
  std::string id(size_t example) const override;
  AskedText make(size_t example) const override;
  // The share of the references that are found; for qa: whether one is.
  double score(const Question& question, std::string_view answer) const override;
  const std::vector<std::string>& problems() const { return lines_.problems; }

 protected:
  std::string title() const override { return dataset_; }

 private:
  bool any_reference() const { return dataset_.starts_with("qa"); }
  AskedText make(const nlohmann::json& line) const;
  // Tokens of text, question and answer; sets `problem` if there is one.
  int64_t tokens_of(const nlohmann::json& line, std::string& problem) const;

  std::string dataset_;
  JsonLines lines_;
  std::string hash_;  // of the file
};

}  // namespace fasa
