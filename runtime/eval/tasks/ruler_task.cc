#include "runtime/eval/tasks/ruler_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/eval/answer_run.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

struct AnswerTokens {
  std::string_view begins;  // the task's name
  int64_t tokens;
};
constexpr std::array<AnswerTokens, 5> kAnswerTokens = {
    {{"vt", 30}, {"cwe", 120}, {"fwe", 50}, {"qa", 32}, {"", 128}}};

// Renames the members of the other form, joined so that the question can be found again.
void use_one_form(Json& line) {
  if (!line.contains("outputs") && line.contains("answer")) line["outputs"] = line["answer"];
  if (line.contains("outputs") && !line["outputs"].is_array()) {
    line["outputs"] = Json::array({line["outputs"]});
  }
  const bool parts = line.contains("context") && line["context"].is_string() &&
                     line.contains("question") && line["question"].is_string();
  if (line.contains("input") || !parts) return;
  const auto context = line["context"].get<std::string>();
  line["input"] = context + line["question"].get<std::string>();
  line["question_at"] = context.size();
}

std::string problem_of(const Json& line) {
  if (!line.contains("input") || !line["input"].is_string()) return "\"input\" is not a text";
  const Json outputs = line.value("outputs", Json::array());
  const bool texts =
      std::all_of(outputs.begin(), outputs.end(), [](const Json& one) { return one.is_string(); });
  if (outputs.empty() || !texts) return "\"outputs\" is not a list of texts";
  if (line.contains("answer_prefix") && !line["answer_prefix"].is_string()) {
    return "\"answer_prefix\" is not a text";
  }
  return "";
}

}  // namespace

size_t ruler_question(std::string_view input) {
  const size_t mark = input.rfind('?'), word = input.rfind("Question:");
  size_t at = std::string_view::npos;
  for (const size_t found : {mark, word}) {
    if (found != std::string_view::npos && (at == std::string_view::npos || found > at)) at = found;
  }
  if (at == std::string_view::npos) return 0;
  const size_t line = input.rfind('\n', at);
  return line == std::string_view::npos ? 0 : line;
}

RulerTask::RulerTask(const std::string& path, std::string dataset, const text::TextCoder& tokenizer,
                     const QuestionOptions& options, size_t examples)
    : QuestionTask(tokenizer, options),
      dataset_(std::move(dataset)),
      lines_(usable_lines(path, {})),
      hash_(content_hash(path)) {
  int64_t most = 0;
  std::vector<JsonLine> usable;
  for (JsonLine& line : lines_.lines) {
    if (usable.size() == examples) break;
    use_one_form(line.object);
    std::string problem = problem_of(line.object);
    const int64_t tokens = problem.empty() ? tokens_of(line.object, problem) : 0;
    if (problem.empty() && tokens <= longest()) {
      most = std::max(most, tokens);
      usable.push_back(std::move(line));
      continue;
    }
    if (problem.empty()) {
      problem =
          fmt::format("{} tokens with the answer, more than the context of {}", tokens, longest());
    }
    lines_.problems.push_back(fmt::format("{}:{}: {}; left out", path, line.number, problem));
  }
  lines_.lines = std::move(usable);
  if (lines_.lines.empty()) {
    throw InputError(fmt::format("{}: no line of the file is usable; {}", path,
                                 lines_.problems.empty() ? "" : lines_.problems.front()));
  }
  set_context(most);
}

int64_t RulerTask::tokens_of(const Json& line, std::string& problem) const {
  try {
    const AskedText asked = make(line);
    const Question& question = asked.questions.front();
    return std::ssize(asked.ids) + std::ssize(question.ids) +
           std::max<int64_t>(question.answer_tokens, std::ssize(ids_behind(question.answer)));
  } catch (const InputError& error) {
    problem = error.what();
    return 0;
  }
}

// Without the context: a sample's result does not depend on it.
nlohmann::json RulerTask::setup() const {
  nlohmann::json setup = QuestionTask::setup();
  setup.erase("context");
  setup.update({{"dataset_kind", "ruler"}, {"dataset", dataset_}, {"data", hash_}});
  return setup;
}

std::string RulerTask::id(size_t example) const {
  return fmt::to_string(lines_.lines[example].number);
}

AskedText RulerTask::make(size_t example) const { return make(lines_.lines[example].object); }

AskedText RulerTask::make(const Json& line) const {
  const auto input = line.at("input").get<std::string>();
  const size_t at = line.value("question_at", ruler_question(input));
  Question question;
  question.text = input.substr(at) + line.value("answer_prefix", "");
  question.references = line.at("outputs").get<std::vector<std::string>>();
  question.answer =
      " " + (any_reference() ? question.references.front()
                             : fmt::format("{}", fmt::join(question.references, ", ")));
  question.answer_tokens =
      std::find_if(kAnswerTokens.begin(), kAnswerTokens.end(), [&](const AnswerTokens& one) {
        return dataset_.starts_with(one.begins);
      })->tokens;
  return whole(input.substr(0, at), std::move(question));
}

double RulerTask::score(const Question& question, std::string_view answer) const {
  const double share = share_found(question.references, answer);
  return any_reference() && share > 0 ? 1 : share;
}

}  // namespace fasa
