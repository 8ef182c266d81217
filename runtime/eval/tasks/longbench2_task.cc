#include "runtime/eval/tasks/longbench2_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/eval/answer_run.h"
#include "runtime/eval/data_sets.h"
#include "runtime/io/hash.h"
#include "runtime/io/input_file.h"

namespace fasa {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kAnswerTokens = 128;
constexpr std::string_view kDocument = "$DOC$";
constexpr std::string_view kSaid = "The correct answer is ";

struct Place {
  std::string_view mark;  // in the prompt
  const char* member;
};
constexpr std::array<Place, 6> kPlaces = {{{kDocument, "context"},
                                           {"$Q$", "question"},
                                           {"$C_A$", "choice_A"},
                                           {"$C_B$", "choice_B"},
                                           {"$C_C$", "choice_C"},
                                           {"$C_D$", "choice_D"}}};

std::string published_prompt(const std::string& folder) {
  for (const fs::path& path :
       {fs::path(folder) / "0shot.txt", fs::path(folder) / "prompts/0shot.txt"}) {
    if (!fs::exists(path)) continue;
    std::string prompt = read_file(path.string());
    if (prompt.find(kDocument) != std::string::npos) return prompt;
    throw InputError(fmt::format("{}: {} is missing; use the file as LongBench publishes it",
                                 path.string(), kDocument));
  }
  throw InputError(
      fmt::format("{}: 0shot.txt is missing; copy it from the folder prompts of LongBench's "
                  "repository to that folder or to {}/prompts",
                  folder, folder));
}

// One pass, so that a document that spells a mark stays as it is.
std::string filled(std::string_view text, const nlohmann::json& line) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const auto place = std::find_if(kPlaces.begin(), kPlaces.end(), [&](const Place& one) {
      return text.substr(at).starts_with(one.mark);
    });
    if (place == kPlaces.end()) {
      result += text[at++];
      continue;
    }
    std::string value = line.at(place->member).get<std::string>();
    result += value;
    at += place->mark.size();
  }
  return result;
}

bool is_letter(const std::string& text) {
  return text.size() == 1 && text.front() >= 'A' && text.front() <= 'D';
}

}  // namespace

std::string chosen_letter(std::string_view answer) {
  std::string plain(answer);
  std::erase(plain, '*');
  for (const std::string_view bracket : {"(", ""}) {
    for (size_t at = 0; (at = plain.find(kSaid, at)) != std::string::npos; ++at) {
      const std::string_view rest = std::string_view(plain).substr(at + kSaid.size());
      if (!rest.starts_with(bracket)) continue;
      const std::string letter(rest.substr(bracket.size(), 1));
      const bool closed =
          bracket.empty() || rest.substr(bracket.size()).substr(0, 2).ends_with(')');
      if (is_letter(letter) && closed) return letter;
    }
  }
  return "";
}

LongBench2Task::LongBench2Task(const std::string& folder, const text::TextCoder& tokenizer,
                               const QuestionOptions& options)
    : QuestionTask(tokenizer, options), prompt_(published_prompt(folder)) {
  const std::string path = data_file(folder, "data");
  std::vector<std::string> required{"answer"};
  for (const Place& place : kPlaces) required.emplace_back(place.member);
  lines_ = usable_lines(path, required);
  std::erase_if(lines_.lines, [&](const JsonLine& line) {
    const auto wrong = std::find_if(required.begin(), required.end(), [&](const auto& member) {
      return !line.object.at(member).is_string();
    });
    const bool letter =
        wrong == required.end() && is_letter(line.object.at("answer").get<std::string>());
    if (letter) return false;
    lines_.problems.push_back(
        fmt::format("{}:{}: \"{}\" is not {}; left out", path, line.number,
                    wrong == required.end() ? "answer" : *wrong,
                    wrong == required.end() ? "one of A, B, C, D" : "a text"));
    return true;
  });
  if (lines_.lines.empty()) {
    throw InputError(
        fmt::format("{}: no line of the file is usable; {}", path, lines_.problems.front()));
  }
  hash_ = content_hash(path);
  require(longest() >= 2 * kAnswerTokens, "--context", longest(),
          fmt::format("{} or more, twice the answer's tokens", 2 * kAnswerTokens));
}

nlohmann::json LongBench2Task::setup() const {
  nlohmann::json setup = QuestionTask::setup();
  setup.update({{"dataset_kind", "longbench2"}, {"data", hash_}, {"prompt", fnv1a(prompt_)}});
  return setup;
}

std::string LongBench2Task::id(size_t example) const {
  return fmt::to_string(lines_.lines[example].number);
}

AskedText LongBench2Task::make(size_t example) const {
  const nlohmann::json& line = lines_.lines[example].object;
  const size_t end = prompt_.find(kDocument) + kDocument.size();
  Question question;
  question.text = filled(std::string_view(prompt_).substr(end), line);
  question.references = {line.at("answer").get<std::string>()};
  question.answer = fmt::format("{}({})", kSaid, question.references.front());
  question.answer_tokens = kAnswerTokens;
  for (const char* member : {"difficulty", "length", "domain"}) {
    if (line.contains(member) && line.at(member).is_string()) {
      question.about[member] = line.at(member);
    }
  }
  return fitted(filled(std::string_view(prompt_).substr(0, end), line), std::move(question));
}

double LongBench2Task::score(const Question& question, std::string_view answer) const {
  return chosen_letter(answer) == question.references.front() ? 1 : 0;
}

bool LongBench2Task::is_complete(const Question& /*question*/, std::string_view answer) const {
  return !chosen_letter(answer).empty();
}

}  // namespace fasa
