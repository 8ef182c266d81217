// LongBench v2 (arXiv 2412.15204) from a local folder: data.json, and the authors' prompt in
// 0shot.txt or prompts/0shot.txt. Choices are scored by the letter that an answer names.
#pragma once

#include <string>
#include <vector>

#include "runtime/eval/json_lines.h"
#include "runtime/eval/tasks/question_task.h"

namespace fasa {

class LongBench2Task final : public QuestionTask {
 public:
  // `tokenizer` must outlive it. Longer texts than the context holds lose their middle. Throws
  // InputError for a missing file and one without a usable line.
  LongBench2Task(const std::string& folder, const text::TextCoder& tokenizer,
                 const QuestionOptions& options);

  nlohmann::json setup() const override;
  size_t examples() const override { return lines_.lines.size(); }
  std::string id(size_t example) const override;
  AskedText make(size_t example) const override;
  double score(const Question& question, std::string_view answer) const override;
  bool is_complete(const Question& question, std::string_view answer) const override;
  const std::vector<std::string>& problems() const { return lines_.problems; }

 protected:
  std::string title() const override { return "longbench2"; }

 private:
  std::string prompt_;
  JsonLines lines_;
  std::string hash_;  // of the data
};

// The letter of "The correct answer is (B)", with or without brackets and asterisks; "": none.
std::string chosen_letter(std::string_view answer);

}  // namespace fasa
