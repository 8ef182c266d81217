#include "runtime/eval/tasks/math_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/eval/answer_run.h"
#include "runtime/io/hash.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

constexpr std::string_view kPrompt =
    "Solve the following problem step by step, and write the final answer as \\boxed{{answer}}.\n\n"
    "Problem: {problem}\n\nSolution:";

// Files use either name for the member.
void rename_question(JsonLine& line) {
  if (!line.object.contains("problem") && line.object.contains("question")) {
    line.object["problem"] = line.object["question"];
  }
}

std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

void MathOptions::validate(int64_t max_positions) const {
  require(context >= 2 && context <= max_positions, "--context", context,
          fmt::format("2 to {}, the number of positions of the model", max_positions));
  require(samples >= 1, "--samples", samples, "1 or more");
  require(pass_k >= 1 && pass_k <= samples, "--pass-k", pass_k,
          fmt::format("1 to {}, the number of samples per problem", samples));
  sampling.validate();
}

MathTask::MathTask(const std::string& path, const text::TextCoder& tokenizer,
                   const MathOptions& options)
    : name_(std::filesystem::path(path).stem().string()),
      tokenizer_(tokenizer),
      options_(options),
      lines_(read_json_lines(path, {"answer"})) {
  for (JsonLine& line : lines_.lines) rename_question(line);
  std::erase_if(lines_.lines, [&](const JsonLine& line) {
    const bool bad = !line.object.contains("problem") || !line.object.at("problem").is_string();
    if (bad) {
      lines_.problems.push_back(
          fmt::format("{}:{}: \"problem\" is missing; the line is skipped", path, line.number));
    }
    return bad;
  });
  if (lines_.lines.empty()) {
    throw InputError(fmt::format("{}: no line of the file is usable{}", path,
                                 lines_.problems.empty() ? "" : "; " + lines_.problems.front()));
  }
  hash_ = content_hash(path);
}

nlohmann::json MathTask::setup() const {
  return {{"dataset_kind", "math"},
          {"dataset", name_},
          {"data", hash_},
          {"context", options_.context},
          {"prompt", fnv1a(kPrompt)},
          {"samples", options_.samples},
          {"pass_k", options_.pass_k},
          {"temperature", options_.sampling.temperature},
          {"top_k", options_.sampling.top_k},
          {"top_p", options_.sampling.top_p},
          {"seed", options_.sampling.seed}};
}

std::string MathTask::id(size_t example) const {
  return fmt::to_string(lines_.lines[example].number);
}

std::string MathTask::prompt(size_t example) const {
  return filled_template(kPrompt, lines_.lines[example].object);
}

nlohmann::json MathTask::record(size_t example, size_t tokens,
                                const nlohmann::json& predictions) const {
  return {{"tokens", tokens},
          {"predictions", predictions},
          {"answer", text_of(lines_.lines[example].object.at("answer"))}};
}

nlohmann::json MathTask::run(size_t example, const EvalTarget& target) {
  const auto ids = encode_prompt(tokenizer_, prompt(example));
  const auto room = options_.context - static_cast<int64_t>(ids.size());
  nlohmann::json predictions = nlohmann::json::array();
  for (int sample = 0; sample < options_.samples; ++sample) {
    Sampling sampling = options_.sampling;
    sampling.seed += static_cast<uint64_t>(sample);
    // A problem that fills the context leaves no tokens for an answer.
    predictions.push_back(room < 1 ? "" : write_answer(target, tokenizer_, ids, room, sampling));
  }
  return record(example, ids.size(), predictions);
}

}  // namespace fasa
