#include "tools/eval_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/eval/data_sets.h"
#include "runtime/eval/longbench_task.h"
#include "runtime/eval/needle_task.h"
#include "runtime/eval/perplexity.h"
#include "runtime/io/nearest.h"

namespace fasa {
namespace {

constexpr int kPerplexityExamples = 16;
constexpr int64_t kContext = 4096;

std::vector<EvalText> texts_of(const EvalOptions& flags, const text::TextCoder* tokenizer) {
  return read_eval_texts(
      flags.texts.empty() ? std::vector{default_eval_text(flags.model_dir)} : flags.texts,
      tokenizer);
}

int examples_of(const EvalOptions& flags, int otherwise) {
  const int examples = flags.examples.value_or(otherwise);
  if (examples >= 1) return examples;
  throw UsageError(fmt::format("--examples = {}: allowed: 1 or more", examples));
}

using Contexts = std::vector<int64_t>;

std::vector<PlannedTask> plan_perplexity(const EvalOptions& flags, const Contexts& contexts,
                                         const ModelConfig& model,
                                         const text::TextCoder* tokenizer) {
  std::vector<PlannedTask> planned;
  for (const int64_t context : contexts) {
    const PerplexityOptions options{
        .context = context,
        .stride = flags.stride.value_or(std::max<int64_t>(1, context / 4)),
        .one_pass = flags.one_pass};
    options.validate(model.max_positions);
    auto task = std::make_unique<PerplexityTask>(texts_of(flags, tokenizer), options);
    const auto examples = static_cast<size_t>(examples_of(flags, kPerplexityExamples));
    const size_t all = task->examples();
    if (flags.examples && examples > all) {
      throw UsageError(fmt::format(
          "--examples = {}: allowed: 1 to {}, the number of windows in the texts", examples, all));
    }
    planned.push_back({std::move(task), std::min(examples, all)});
  }
  return planned;
}

std::vector<PlannedTask> plan_needle(const EvalOptions& flags, const Contexts& contexts,
                                     const ModelConfig& model, const text::TextCoder* tokenizer) {
  std::vector<PlannedTask> planned;
  for (const int64_t context : contexts) {
    NeedleOptions options{.context = context, .facts = flags.facts, .seed = flags.seed};
    if (!flags.depths.empty()) options.depths = flags.depths;
    options.examples = examples_of(flags, options.examples);
    options.validate(model.max_positions);
    planned.push_back({std::make_unique<NeedleTask>(texts_of(flags, tokenizer),
                                                    NeedleTemplate::of_model(flags.model_dir),
                                                    *tokenizer, options),
                       static_cast<size_t>(options.examples)});
  }
  return planned;
}

const text::TextCoder& require_tokenizer(const text::TextCoder* tokenizer) {
  if (tokenizer != nullptr) return *tokenizer;
  throw UsageError("this model has no tokenizer; give a model that has one");
}

int64_t one_context(const EvalOptions& flags, const Contexts& contexts) {
  if (contexts.size() == 1) return contexts.front();
  throw UsageError(
      fmt::format("--context has {} values; eval {} takes one", contexts.size(), flags.task));
}

PlannedTask plan_data_set(std::unique_ptr<EvalTask> task, const EvalOptions& flags,
                          const std::vector<std::string>& problems) {
  const size_t all = task->examples();
  const auto examples = static_cast<size_t>(examples_of(flags, static_cast<int>(all)));
  return {std::move(task), std::min(examples, all), problems, true};
}

std::vector<PlannedTask> plan_longbench(const EvalOptions& flags, const Contexts& contexts,
                                        const ModelConfig& model,
                                        const text::TextCoder* tokenizer) {
  const int64_t context = one_context(flags, contexts);
  if (context > model.max_positions) {
    throw UsageError(
        fmt::format("--context = {}: allowed: up to {}, the number of positions of the model",
                    context, model.max_positions));
  }
  std::vector<PlannedTask> all;
  for (const std::string& name :
       data_sets(flags.task, flags.data, flags.tasks, longbench_names())) {
    auto task =
        std::make_unique<LongBenchTask>(flags.data, name, require_tokenizer(tokenizer), context);
    const auto problems = task->problems();
    all.push_back(plan_data_set(std::move(task), flags, problems));
  }
  return all;
}

std::vector<PlannedTask> plan_math(const EvalOptions& flags, const Contexts& contexts,
                                   const ModelConfig& model, const text::TextCoder* tokenizer) {
  MathOptions options = flags.math;
  options.context = one_context(flags, contexts);
  options.sampling.seed = flags.seed;
  options.validate(model.max_positions);
  std::vector<PlannedTask> all;
  for (const std::string& name : data_sets(flags.task, flags.data, flags.tasks, {})) {
    const auto path = (std::filesystem::path(flags.data) / (name + ".jsonl")).string();
    auto task = std::make_unique<MathTask>(path, require_tokenizer(tokenizer), options);
    const auto problems = task->problems();
    all.push_back(plan_data_set(std::move(task), flags, problems));
  }
  return all;
}

struct TaskKind {
  std::string_view name;
  std::vector<PlannedTask> (*plan)(const EvalOptions&, const Contexts&, const ModelConfig&,
                                   const text::TextCoder*);
};
constexpr std::array<TaskKind, 4> kTasks = {{{"ppl", plan_perplexity},
                                             {"needle", plan_needle},
                                             {"longbench", plan_longbench},
                                             {"math", plan_math}}};

}  // namespace

std::vector<PlannedTask> plan_tasks(const EvalOptions& flags, const ModelConfig& model,
                                    const text::TextCoder* tokenizer) {
  const auto found = std::find_if(kTasks.begin(), kTasks.end(),
                                  [&](const TaskKind& kind) { return kind.name == flags.task; });
  if (found == kTasks.end()) {
    std::vector<std::string> names;
    for (const TaskKind& kind : kTasks) names.emplace_back(kind.name);
    throw UsageError(fmt::format("unknown task \"{}\"{}; allowed: {}", flags.task,
                                 nearest_hint(flags.task, names), fmt::join(names, ", ")));
  }
  const Contexts contexts =
      flags.contexts.empty() ? Contexts{std::min(kContext, model.max_positions)} : flags.contexts;
  return found->plan(flags, contexts, model, tokenizer);
}

}  // namespace fasa
