// Retrieval of facts planted in a text at given depths: the text is prefilled; question and answer
// are decoded token by token, each question in a fork of its own.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "runtime/eval/eval_task.h"
#include "runtime/eval/eval_text.h"
#include "runtime/eval/needle_template.h"
#include "runtime/eval/needle_text.h"

namespace fasa {

struct NeedleOptions {
  int64_t context = 4096;  // tokens, question and answer included
  int facts = 4;           // per example
  // Depths of facts, as the share of the text before them. An example takes `facts` of them, evenly
  // spaced in the list; the next example takes those after them.
  std::vector<double> depths = {0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875};
  int examples = 25;
  uint64_t seed = 1;
  // Throws UsageError naming the flag, what was given and what is allowed.
  void validate(int64_t max_positions) const;
};

class NeedleTask final : public EvalTask {
 public:
  // `tokenizer` must outlive it. Throws InputError for texts too short, UsageError for a context
  // too short for the facts.
  NeedleTask(std::vector<EvalText> texts, NeedleTemplate needle, const text::TextCoder& tokenizer,
             const NeedleOptions& options);

  std::string name() const override;
  Metric metric() const override { return Metric::kAccuracy; }
  nlohmann::json setup() const override;
  size_t examples() const override { return static_cast<size_t>(options_.examples); }
  std::string id(size_t example) const override { return std::to_string(example); }
  int64_t longest() const override { return options_.context; }
  nlohmann::json run(size_t example, const EvalTarget& target) override;

  // An example's prompt and questions, the same for every selection.
  struct Example {
    std::vector<int32_t> text;
    struct Question {
      NeedleFact fact;
      double depth = 0;
    };
    std::vector<Question> questions;
  };
  Example make(size_t example) const;

 private:
  std::span<const int32_t> haystack(size_t tokens, std::mt19937_64& random) const;
  std::vector<int32_t> planted(std::span<const int32_t> hay,
                               std::span<const Example::Question> questions) const;
  int64_t max_answer_tokens() const;
  nlohmann::json ask(const Example::Question& question, class DecodeRun& run) const;

  std::vector<EvalText> texts_;
  NeedleTemplate needle_;
  const text::TextCoder& tokenizer_;
  NeedleOptions options_;
};

}  // namespace fasa
