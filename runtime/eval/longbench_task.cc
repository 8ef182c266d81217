#include "runtime/eval/longbench_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/eval/answer_run.h"
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
                             const text::TextCoder& tokenizer, int64_t context)
    : dataset_(std::move(dataset)),
      tokenizer_(tokenizer),
      context_(context),
      format_(LongBenchFormat::load(folder, dataset_)) {
  const std::string path = (fs::path(folder) / (dataset_ + ".jsonl")).string();
  lines_ = read_json_lines(path, {"context", "input", "answers"});
  if (lines_.lines.empty()) {
    throw InputError(fmt::format("{}: no line of the file is usable{}", path,
                                 lines_.problems.empty() ? "" : "; " + lines_.problems.front()));
  }
  hash_ = fmt::format("fnv1a:{:016x}", fnv1a(read_file(path, kDataFile)));
  if (context_ < 2 * format_.answer_tokens) {
    throw UsageError(
        fmt::format("--context = {}: allowed: {} or more, twice the number of answer tokens of {}",
                    context_, 2 * format_.answer_tokens, dataset_));
  }
}

nlohmann::json LongBenchTask::setup() const {
  return {{"dataset_kind", "longbench"},
          {"dataset", dataset_},
          {"data", hash_},
          {"context", context_},
          {"prompt", fnv1a(format_.prompt)},
          {"answer_tokens", format_.answer_tokens}};
}

std::string LongBenchTask::id(size_t example) const {
  return fmt::to_string(lines_.lines[example].number);
}

std::vector<int32_t> LongBenchTask::prompt(size_t example, int64_t reserved) const {
  return without_middle(
      encode_prompt(tokenizer_, filled_template(format_.prompt, lines_.lines[example].object)),
      std::max<int64_t>(0, context_ - format_.answer_tokens - reserved));
}

nlohmann::json LongBenchTask::record(size_t example, size_t tokens,
                                     const std::string& prediction) const {
  const nlohmann::json& object = lines_.lines[example].object;
  nlohmann::json answers = object.at("answers");
  if (!answers.is_array()) answers = nlohmann::json::array({answers});
  return {{"tokens", tokens},
          {"prediction", prediction},
          {"answers", answers},
          {"all_classes", object.value("all_classes", nlohmann::json())}};
}

nlohmann::json LongBenchTask::run(size_t example, const EvalTarget& target) {
  const auto ids = prompt(example);
  return record(example, ids.size(),
                write_answer(target, tokenizer_, ids, format_.answer_tokens, Sampling{}));
}

}  // namespace fasa
