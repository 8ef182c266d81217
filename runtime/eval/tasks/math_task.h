// Problems whose answers are boxed, from a JSONL file in the format of MATH500 or AIME.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/eval/json_lines.h"
#include "runtime/eval/tasks/eval_task.h"
#include "runtime/llm/generation/sampler.h"
#include "runtime/text/tokenizer.h"

namespace fasa {

struct MathOptions {
  int64_t context = 4096;  // tokens of prompt and solution
  int samples = 1;         // solutions per problem
  int pass_k = 1;          // a problem is right if one of pass_k solutions is
  Sampling sampling = {};  // with the seed of a problem's first solution
  // Throws UsageError naming the flag, what was given and what is allowed.
  void validate(int64_t max_positions) const;
};

class MathTask final : public EvalTask {
 public:
  // Reads lines with `problem` (or `question`) and `answer`. `tokenizer` must outlive it. Throws
  // InputError for a file without a valid line.
  MathTask(const std::string& path, const text::TextCoder& tokenizer, const MathOptions& options);

  std::string name() const override { return name_; }
  Metric metric() const override { return Metric::kScore; }
  nlohmann::json setup() const override;
  size_t examples() const override { return lines_.lines.size(); }
  std::string id(size_t example) const override;
  int64_t longest() const override { return options_.context; }
  nlohmann::json run(size_t example, const EvalTarget& target) override;

  const std::vector<std::string>& problems() const { return lines_.problems; }
  std::string prompt(size_t example) const;  // as text
  // The record of run() for predictions, one per solution, to a prompt of `tokens` tokens.
  nlohmann::json record(size_t example, size_t tokens, const nlohmann::json& predictions) const;

 private:
  std::string name_;
  const text::TextCoder& tokenizer_;
  MathOptions options_;
  JsonLines lines_;
  std::string hash_;  // of the file
};

}  // namespace fasa
