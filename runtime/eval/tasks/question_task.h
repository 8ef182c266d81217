// Tasks that ask questions about a text. The text is read with full attention, once for all methods
// of a row dtype; questions and answers are decoded with the selection, each question in a fork of
// its own or, in turns, after the questions before it and their right answers.
//
// If methods are compared with full attention, the right answer is decoded as well, and each of its
// tokens' logits are compared: that needs no model able to answer.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/eval/tasks/eval_task.h"
#include "runtime/text/tokenizer.h"

namespace fasa {

class DecodeRun;

struct Question {
  std::string text;                     // follows the text that was read, or the turn before it
  std::vector<int32_t> ids = {};        // of it; empty: those of ids_behind()
  std::string answer;                   // the right one as it would follow the question; "": none
  std::vector<std::string> references;  // the answer is scored by these
  int64_t answer_tokens = 0;            // at most
  nlohmann::json about = nlohmann::json::object();  // members of its record, such as "depth"
};

struct AskedText {
  std::vector<int32_t> ids;
  std::vector<Question> questions;
};

struct QuestionOptions {
  int64_t context = 4096;  // tokens of text, questions and answers
  // Questions are read with full attention, as the end of a prompt: the first token of an answer is
  // then exact.
  bool prefill = false;
  bool turns = false;

  // Throws UsageError naming the flag, what was given and what is allowed.
  void validate(int64_t max_positions) const;
};

class QuestionTask : public EvalTask {
 public:
  // `tokenizer` must outlive it.
  QuestionTask(const text::TextCoder& tokenizer, const QuestionOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  std::string name() const override;
  Metric metric() const override { return Metric::kAccuracy; }
  nlohmann::json setup() const override;
  std::string id(size_t example) const override { return std::to_string(example); }
  int64_t longest() const override { return options_.context; }
  int64_t compared_steps() const override;
  nlohmann::json run(size_t example, const EvalTarget& target) final;

  // An example's text and questions, the same for every method.
  virtual AskedText make(size_t example) const = 0;
  // 0 to 1.
  virtual double score(const Question& question, std::string_view answer) const = 0;
  // True if more tokens would not change the score.
  virtual bool is_complete(const Question& question, std::string_view answer) const;
  // The ids of a text that follows other tokens.
  std::vector<int32_t> ids_behind(std::string_view text) const;
  std::vector<int32_t> ids_of(const Question& question) const;
  // A question's members of its record.
  nlohmann::json answered(const Question& question, const std::string& answer) const;
  // The record of an example but for the scores of right answers; `questions`: answered() of each.
  virtual nlohmann::json record(size_t example, const AskedText& asked,
                                nlohmann::json questions) const;

 protected:
  virtual std::string title() const = 0;  // name() without the options
  // The text and its question. If they and the answer do not fit the context, the text loses its
  // middle; if there is no room for a text, the question is a prompt's last token. Throws
  // InputError for fewer than two tokens.
  AskedText fitted(const std::string& text, Question question) const {
    return fitted(text, std::move(question), longest());
  }
  // The same without a limit.
  AskedText whole(const std::string& text, Question question) const {
    return fitted(text, std::move(question), std::numeric_limits<int64_t>::max() / 2);
  }
  void set_context(int64_t context) { options_.context = context; }
  const text::TextCoder& tokenizer() const { return tokenizer_; }
  const QuestionOptions& options() const { return options_; }

 private:
  AskedText fitted(const std::string& text, Question question, int64_t context) const;
  std::vector<float> read_question(const Question& question, DecodeRun& run) const;
  void read_answer(const Question& question, const std::vector<float>& logits, DecodeRun& run,
                   class StepScores& scores) const;

  const text::TextCoder& tokenizer_;
  QuestionOptions options_;
};

// The mean share of the references that are in the answer, ignoring case.
double share_found(const std::vector<std::string>& references, std::string_view answer);

}  // namespace fasa
