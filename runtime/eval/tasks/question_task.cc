#include "runtime/eval/tasks/question_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/eval/answer_run.h"
#include "runtime/eval/decode_run.h"
#include "runtime/eval/step_scores.h"

namespace fasa {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Decodes the ids, as many in a step as the runtime allows, and calls visit(logits, i) with the
// logits after each.
template <typename Visit>
void decode(DecodeRun& run, std::span<const int32_t> ids, Visit visit) {
  for (size_t at = 0; at < ids.size();) {
    const size_t count = std::min(static_cast<size_t>(run.most()), ids.size() - at);
    const std::span<const float> logits = run.steps(ids.subspan(at, count));
    const size_t width = logits.size() / count;
    for (size_t i = 0; i < count; ++i, ++at) visit(logits.subspan(i * width, width), at);
  }
}

}  // namespace

void QuestionOptions::validate(int64_t max_positions) const {
  require(context >= 1 && context <= max_positions, "--context", context,
          fmt::format("1 to {}, the number of positions of the model", max_positions));
}

double share_found(const std::vector<std::string>& references, std::string_view answer) {
  const std::string said = lower_case(answer);
  const auto found = std::count_if(references.begin(), references.end(), [&](const auto& one) {
    return said.find(lower_case(one)) != std::string::npos;
  });
  return static_cast<double>(found) / static_cast<double>(std::max<size_t>(1, references.size()));
}

std::string QuestionTask::name() const {
  return title() + (options_.prefill ? ", question prefilled" : "");
}

nlohmann::json QuestionTask::setup() const {
  nlohmann::json setup{{"context", options_.context}, {"record", 2}};  // the records' form
  if (options_.prefill) setup["question"] = "prefill";
  if (options_.turns) setup["turns"] = true;
  return setup;
}

// Those of the first example: answers of others are about as long.
int64_t QuestionTask::compared_steps() const {
  int64_t steps = 0;
  for (const Question& question : make(0).questions) {
    steps += static_cast<int64_t>(ids_behind(question.answer).size());
  }
  return steps;
}

std::vector<int32_t> QuestionTask::ids_behind(std::string_view text) const {
  return text.empty() ? std::vector<int32_t>() : encode_behind(tokenizer_, text);
}

bool QuestionTask::is_complete(const Question& question, std::string_view answer) const {
  return score(question, answer) == 1;
}

std::vector<int32_t> QuestionTask::ids_of(const Question& question) const {
  return question.ids.empty() ? ids_behind(question.text) : question.ids;
}

AskedText QuestionTask::fitted(const std::string& text, Question question, int64_t context) const {
  const int64_t room = context - question.answer_tokens;
  auto ids = encode_prompt(tokenizer_, text);
  question.ids = ids_behind(question.text);
  const int64_t left = room - std::ssize(question.ids);
  if (!ids.empty() && !question.ids.empty() && left > 0) {
    ids = without_middle(std::move(ids), left);
  } else {
    ids =
        without_middle(encode_prompt(tokenizer_, text + question.text), std::max<int64_t>(2, room));
    if (ids.size() < 2) throw InputError("a prompt of fewer than two tokens");
    question.ids = {ids.back()};
    ids.pop_back();
  }
  std::vector<Question> questions;
  questions.push_back(std::move(question));
  return {std::move(ids), std::move(questions)};
}

std::vector<float> QuestionTask::read_question(const Question& question, DecodeRun& run) const {
  const auto ids = ids_of(question);
  std::vector<float> last;
  if (options_.prefill) {
    const auto logits = run.read(ids);
    last.assign(logits.begin(), logits.end());
  } else {
    decode(run, ids, [&](std::span<const float> logits, size_t at) {
      if (at + 1 == ids.size()) last.assign(logits.begin(), logits.end());
    });
  }
  return last;
}

void QuestionTask::read_answer(const Question& question, const std::vector<float>& logits,
                               DecodeRun& run, StepScores& scores) const {
  const auto ids = ids_behind(question.answer);
  if (ids.empty()) return;
  scores.add(logits, ids.front());
  decode(run, ids, [&](std::span<const float> next, size_t at) {
    if (at + 1 < ids.size()) scores.add(next, ids[at + 1]);
  });
}

nlohmann::json QuestionTask::answered(const Question& question, const std::string& answer) const {
  nlohmann::json json = question.about;
  json["question"] = question.text;
  json["expected"] = question.references.size() == 1 ? nlohmann::json(question.references.front())
                                                     : nlohmann::json(question.references);
  json["answer"] = answer;
  json["score"] = score(question, answer);
  return json;
}

nlohmann::json QuestionTask::record(size_t /*example*/, const AskedText& asked,
                                    nlohmann::json questions) const {
  double right = 0;
  for (const auto& question : questions) right += question.at("score").get<double>();
  return {{"tokens", asked.ids.size()},
          {"questions", std::move(questions)},
          {"right", right},
          {"asked", asked.questions.size()}};
}

nlohmann::json QuestionTask::run(size_t example, const EvalTarget& target) {
  const AskedText asked = make(example);
  const bool compares = target.keep != nullptr || target.against != nullptr;
  DecodeRun whole(target.model, target.runtime, options_.context, target.prompt);
  whole.prefill(asked.ids);
  nlohmann::json questions = nlohmann::json::array();
  StepScores scores(target);
  for (const Question& question : asked.questions) {
    std::optional<DecodeRun> fork;
    if (!options_.turns) fork.emplace(whole, whole.length());
    DecodeRun& run = options_.turns ? whole : *fork;
    const std::vector<float> logits = read_question(question, run);
    {
      DecodeRun answering(run, run.length());
      const auto complete = [&](std::string_view answer) { return is_complete(question, answer); };
      questions.push_back(answered(question, decode_answer(answering, logits, {}, tokenizer_,
                                                           question.answer_tokens, complete)));
    }
    if (options_.turns || compares) read_answer(question, logits, run, scores);
  }
  nlohmann::json json = record(example, asked, std::move(questions));
  if (compares) {
    json["scored_tokens"] = scores.steps();
    scores.write(json);
  }
  return json;
}

}  // namespace fasa
