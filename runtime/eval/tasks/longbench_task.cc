#include "runtime/eval/tasks/longbench_task.h"

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
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 21> kNames = {"narrativeqa",
                                                     "qasper",
                                                     "multifieldqa_en",
                                                     "multifieldqa_zh",
                                                     "hotpotqa",
                                                     "2wikimqa",
                                                     "musique",
                                                     "dureader",
                                                     "gov_report",
                                                     "qmsum",
                                                     "multi_news",
                                                     "vcsum",
                                                     "trec",
                                                     "triviaqa",
                                                     "samsum",
                                                     "lsht",
                                                     "lcc",
                                                     "passage_count",
                                                     "passage_retrieval_en",
                                                     "passage_retrieval_zh",
                                                     "repobench-p"};

// Reads a member of one of the two published files.
nlohmann::json published(const std::string& folder, const char* file, const std::string& task) {
  for (const fs::path& place : {fs::path(folder), fs::path(folder) / "config"}) {
    const std::string path = (place / file).string();
    if (!fs::exists(path)) continue;
    const nlohmann::json object = parse_json(read_file(path), path);
    if (object.is_object() && object.contains(task)) return object.at(task);
    throw InputError(
        fmt::format("{}: \"{}\" is missing; use the file as LongBench publishes it", path, task));
  }
  throw InputError(
      fmt::format("{}: {} is missing; copy it from the folder config of LongBench's repository to "
                  "that folder or to {}/config",
                  folder, file, folder));
}

}  // namespace

std::span<const std::string_view> longbench_names() { return kNames; }

LongBenchFormat LongBenchFormat::load(const std::string& folder, const std::string& task) {
  const auto prompt = published(folder, "dataset2prompt.json", task);
  const auto tokens = published(folder, "dataset2maxlen.json", task);
  if (!prompt.is_string() || !tokens.is_number_integer() || tokens.get<int64_t>() < 1) {
    throw InputError(
        fmt::format("{}: {}: the prompt is not a text, or the length is not a number of tokens; "
                    "use dataset2prompt.json and dataset2maxlen.json as LongBench publishes them",
                    folder, task));
  }
  return {prompt.get<std::string>(), tokens.get<int64_t>()};
}

LongBenchTask::LongBenchTask(const std::string& folder, std::string dataset,
                             const text::TextCoder& tokenizer, const QuestionOptions& options)
    : QuestionTask(tokenizer, options),
      dataset_(std::move(dataset)),
      format_(LongBenchFormat::load(folder, dataset_)),
      lines_(usable_lines(data_file(folder, dataset_), {"context", "input", "answers"})),
      hash_(content_hash(data_file(folder, dataset_))) {
  const int64_t least = 2 * format_.answer_tokens;
  require(longest() >= least, "--context", longest(),
          fmt::format("{} or more, twice the number of answer tokens of {}", least, dataset_));
}

nlohmann::json LongBenchTask::setup() const {
  nlohmann::json setup = QuestionTask::setup();
  setup.update({{"dataset_kind", "longbench"},
                {"dataset", dataset_},
                {"data", hash_},
                {"prompt", fnv1a(format_.prompt)},
                {"answer_tokens", format_.answer_tokens}});
  return setup;
}

std::string LongBenchTask::id(size_t example) const {
  return fmt::to_string(lines_.lines[example].number);
}

AskedText LongBenchTask::make(size_t example) const {
  constexpr std::string_view kDocument = "{context}";
  const nlohmann::json& line = lines_.lines[example].object;
  const size_t found = format_.prompt.find(kDocument);
  const size_t end = found == std::string::npos ? 0 : found + kDocument.size();
  Question question;
  question.text = filled_template(std::string_view(format_.prompt).substr(end), line);
  const nlohmann::json& answers = line.at("answers");
  const nlohmann::json& first = answers.is_array() && !answers.empty() ? answers.front() : answers;
  if (first.is_string()) question.answer = " " + first.get<std::string>();
  question.answer_tokens = format_.answer_tokens;
  return fitted(filled_template(std::string_view(format_.prompt).substr(0, end), line),
                std::move(question));
}

// The metrics are a separate program's.
double LongBenchTask::score(const Question& /*question*/, std::string_view /*answer*/) const {
  return 0;
}

nlohmann::json LongBenchTask::record(size_t example, const AskedText& asked,
                                     nlohmann::json questions) const {
  const nlohmann::json& object = lines_.lines[example].object;
  nlohmann::json answers = object.at("answers");
  if (!answers.is_array()) answers = nlohmann::json::array({answers});
  return {{"tokens", asked.ids.size()},
          {"prediction", questions.front().at("answer")},
          {"answers", answers},
          {"all_classes", object.value("all_classes", nlohmann::json())}};
}

}  // namespace fasa
