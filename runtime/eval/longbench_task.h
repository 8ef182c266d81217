// One task of LongBench v1 (arXiv 2308.14508) from a local folder. It writes answers; a separate
// program scores them (tools/fasa_metrics).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/eval/eval_task.h"
#include "runtime/eval/json_lines.h"
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

class LongBenchTask final : public EvalTask {
 public:
  // Reads FOLDER/NAME.jsonl. `tokenizer` must outlive it. `context`: tokens of prompt and answer;
  // longer prompts lose their middle. Throws InputError for a file without a valid line, UsageError
  // for a context too short for the answer.
  LongBenchTask(const std::string& folder, std::string dataset, const text::TextCoder& tokenizer,
                int64_t context);

  std::string name() const override { return dataset_; }
  Metric metric() const override { return Metric::kScore; }
  nlohmann::json setup() const override;
  size_t examples() const override { return lines_.lines.size(); }
  std::string id(size_t example) const override;
  int64_t longest() const override { return context_; }
  nlohmann::json run(size_t example, const EvalTarget& target) override;

  const std::vector<std::string>& problems() const { return lines_.problems; }
  int64_t answer_tokens() const { return format_.answer_tokens; }
  // Leaves space in the context for the answer and `reserved` more tokens.
  std::vector<int32_t> prompt(size_t example, int64_t reserved = 0) const;
  // The record of run() for a prediction to a prompt of `tokens` tokens.
  nlohmann::json record(size_t example, size_t tokens, const std::string& prediction) const;

 private:
  std::string dataset_;
  const text::TextCoder& tokenizer_;
  int64_t context_;
  LongBenchFormat format_;
  JsonLines lines_;
  std::string hash_;  // of the file
};

}  // namespace fasa
