// One task of LongBench v1 (arXiv 2308.14508) from a local folder. It writes answers; a separate
// program scores them (tools/fasa_metrics).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/eval/json_lines.h"
#include "runtime/eval/tasks/question_task.h"
#include "runtime/text/tokenizer.h"

namespace fasa {

// Names of the 21 tasks, equal to their file names.
std::span<const std::string_view> longbench_names();

// Prompt templates and answer lengths as published by the authors: dataset2prompt.json and
// dataset2maxlen.json, in the data's folder or its subfolder `config`.
struct LongBenchFormat {
  std::string prompt;  // {context}, {input}
  int64_t answer_tokens = 0;

  // Throws InputError that names the missing file and where it is published.
  static LongBenchFormat load(const std::string& folder, const std::string& task);
};

// The text is the prompt up to the document's end, the question what follows.
class LongBenchTask final : public QuestionTask {
 public:
  // Reads FOLDER/NAME.jsonl. `tokenizer` must outlive it. Longer texts than the context holds lose
  // their middle. Throws InputError for a file without a valid line, UsageError for a context too
  // short for the answer.
  LongBenchTask(const std::string& folder, std::string dataset, const text::TextCoder& tokenizer,
                const QuestionOptions& options);

  Metric metric() const override { return Metric::kScore; }
  nlohmann::json setup() const override;
  size_t examples() const override { return lines_.lines.size(); }
  std::string id(size_t example) const override;
  AskedText make(size_t example) const override;
  double score(const Question& question, std::string_view answer) const override;
  bool is_complete(const Question& /*question*/, std::string_view /*answer*/) const override {
    return false;
  }
  nlohmann::json record(size_t example, const AskedText& asked,
                        nlohmann::json questions) const override;
  const std::vector<std::string>& problems() const { return lines_.problems; }

 protected:
  std::string title() const override { return dataset_; }

 private:
  std::string dataset_;
  LongBenchFormat format_;
  JsonLines lines_;
  std::string hash_;  // of the file
};

}  // namespace fasa
