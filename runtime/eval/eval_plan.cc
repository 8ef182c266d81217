#include "runtime/eval/eval_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/eval/data_sets.h"
#include "runtime/eval/perplexity.h"
#include "runtime/eval/tasks/drawn_task.h"
#include "runtime/eval/tasks/longbench2_task.h"
#include "runtime/eval/tasks/longbench_task.h"
#include "runtime/eval/tasks/needle_task.h"
#include "runtime/eval/tasks/ruler_task.h"
#include "runtime/io/nearest.h"

namespace fasa {
namespace {

constexpr int kPerplexityExamples = 16;
constexpr int64_t kContext = 4096;
constexpr int kFacts = 4;
constexpr int kTurns = 5;

// One context of a command.
struct Planning {
  const EvalOptions& flags;
  int64_t context;
  int64_t max_positions;
  const text::TextCoder* coder;

  const text::TextCoder& tokenizer() const {
    if (coder != nullptr) return *coder;
    throw UsageError("this model has no tokenizer; give a model that has one");
  }
  std::vector<EvalText> texts() const {
    return read_eval_texts(
        flags.texts.empty() ? std::vector{default_eval_text(flags.model_dir)} : flags.texts, coder);
  }
  int examples(int otherwise) const {
    const int examples = flags.examples.value_or(otherwise);
    require(examples >= 1, "--examples", examples, "1 or more");
    return examples;
  }
  QuestionOptions question(bool turns = false) const {
    const QuestionOptions options{context, flags.prefill_questions, turns};
    options.validate(max_positions);
    return options;
  }
};

using Planned = std::vector<PlannedTask>;

template <typename Task>
PlannedTask planned(std::unique_ptr<Task> task) {
  const size_t all = task->examples();
  return {std::move(task), all};
}

// A task over the lines of a file, or as many of them as asked for.
template <typename Task>
PlannedTask planned_lines(std::unique_ptr<Task> task, const Planning& plan, bool scored_apart) {
  const size_t all = task->examples();
  const auto examples = static_cast<size_t>(plan.examples(static_cast<int>(all)));
  auto problems = task->problems();
  return {std::move(task), std::min(examples, all), std::move(problems), scored_apart};
}

Planned plan_perplexity(const Planning& plan) {
  const PerplexityOptions options{
      .context = plan.context,
      .stride = plan.flags.stride.value_or(std::max<int64_t>(1, plan.context / 4)),
      .one_pass = plan.flags.one_pass};
  options.validate(plan.max_positions);
  auto task = std::make_unique<PerplexityTask>(plan.texts(), options);
  const auto examples = static_cast<size_t>(plan.examples(kPerplexityExamples));
  const size_t all = task->examples();
  require(!plan.flags.examples || examples <= all, "--examples", examples,
          fmt::format("1 to {}, the number of windows in the texts", all));
  Planned tasks;
  tasks.push_back({std::move(task), std::min(examples, all)});
  return tasks;
}

Planned plan_facts(const Planning& plan, bool turns) {
  NeedleOptions options{.question = plan.question(turns),
                        .facts = plan.flags.facts.value_or(turns ? kTurns : kFacts),
                        .seed = plan.flags.seed};
  if (!plan.flags.depths.empty()) options.depths = plan.flags.depths;
  options.examples = plan.examples(options.examples);
  options.validate(plan.max_positions);
  Planned tasks;
  tasks.push_back(planned(std::make_unique<NeedleTask>(
      plan.texts(), NeedleTemplate::of_model(plan.flags.model_dir), plan.tokenizer(), options)));
  return tasks;
}

PlannedTask drawn(const DrawnKind& kind, const Planning& plan, int records) {
  DrawnOptions options{.question = plan.question(), .records = records, .seed = plan.flags.seed};
  options.examples = plan.examples(options.examples);
  return planned(std::make_unique<DrawnTask>(kind, plan.texts(), plan.tokenizer(), options));
}

Planned plan_retrieval(const Planning& plan) {
  std::vector<std::string_view> known;
  for (const DrawnKind& kind : retrieval_kinds()) known.push_back(kind.name);
  const auto& asked = plan.flags.tasks;
  require_known(asked, known);
  Planned tasks;
  for (const DrawnKind& kind : retrieval_kinds()) {
    const bool wanted =
        asked.empty() || std::find(asked.begin(), asked.end(), kind.name) != asked.end();
    if (wanted) tasks.push_back(drawn(kind, plan, 0));
  }
  return tasks;
}

Planned plan_extract(const Planning& plan) {
  Planned tasks;
  for (const int records : plan.flags.records) {
    require(records >= 1 && records <= 512, "--records", records, "1 to 512");
    tasks.push_back(drawn(extract_kind(), plan, records));
  }
  return tasks;
}

Planned plan_ruler(const Planning& plan) {
  const size_t most = plan.flags.examples ? static_cast<size_t>(plan.examples(1)) : SIZE_MAX;
  Planned tasks;
  for (const auto& name : data_sets(plan.flags.task, plan.flags.data, plan.flags.tasks, {})) {
    tasks.push_back(
        planned_lines(std::make_unique<RulerTask>(data_file(plan.flags.data, name), name,
                                                  plan.tokenizer(), plan.question(), most),
                      plan, false));
  }
  return tasks;
}

Planned plan_longbench(const Planning& plan) {
  Planned tasks;
  for (const std::string& name :
       data_sets(plan.flags.task, plan.flags.data, plan.flags.tasks, longbench_names())) {
    tasks.push_back(planned_lines(
        std::make_unique<LongBenchTask>(plan.flags.data, name, plan.tokenizer(), plan.question()),
        plan, true));
  }
  return tasks;
}

Planned plan_longbench2(const Planning& plan) {
  constexpr std::array<std::string_view, 1> kFile = {"data"};
  data_sets(plan.flags.task, plan.flags.data, plan.flags.tasks, kFile);
  Planned tasks;
  tasks.push_back(planned_lines(
      std::make_unique<LongBench2Task>(plan.flags.data, plan.tokenizer(), plan.question()), plan,
      false));
  return tasks;
}

Planned plan_math(const Planning& plan) {
  MathOptions options = plan.flags.math;
  options.context = plan.context;
  options.sampling.seed = plan.flags.seed;
  options.validate(plan.max_positions);
  Planned tasks;
  for (const auto& name : data_sets(plan.flags.task, plan.flags.data, plan.flags.tasks, {})) {
    tasks.push_back(planned_lines(
        std::make_unique<MathTask>(data_file(plan.flags.data, name), plan.tokenizer(), options),
        plan, true));
  }
  return tasks;
}

struct TaskKind {
  std::string_view name;
  Planned (*plan)(const Planning&);
  bool data = false;  // reads --data: one context, by default the model's
};
constexpr std::array<TaskKind, 9> kTasks = {
    {{"ppl", plan_perplexity},
     {"needle", [](const Planning& plan) { return plan_facts(plan, false); }},
     {"turns", [](const Planning& plan) { return plan_facts(plan, true); }},
     {"retrieval", plan_retrieval},
     {"extract", plan_extract},
     {"ruler", plan_ruler, true},
     {"longbench", plan_longbench, true},
     {"longbench2", plan_longbench2, true},
     {"math", plan_math, true}}};

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const TaskKind& kind : kTasks) names.emplace_back(kind.name);
  return names;
}

}  // namespace

std::string eval_task_names() { return fmt::format("{}", fmt::join(task_names(), ", ")); }

Planned plan_tasks(const EvalOptions& flags, int64_t max_positions,
                   const text::TextCoder* tokenizer) {
  const auto found = std::find_if(kTasks.begin(), kTasks.end(),
                                  [&](const TaskKind& kind) { return kind.name == flags.task; });
  if (found == kTasks.end()) {
    throw UsageError(fmt::format("unknown task \"{}\"{}; allowed: {}", flags.task,
                                 nearest_hint(flags.task, task_names()), eval_task_names()));
  }
  std::vector<int64_t> contexts = flags.contexts;
  const bool ruler = flags.task == "ruler";  // its context is that of its longest sample
  if (contexts.empty()) contexts = {ruler ? max_positions : std::min(kContext, max_positions)};
  if (found->data && contexts.size() > 1) {
    throw UsageError(
        fmt::format("--context has {} values; eval {} takes one", contexts.size(), flags.task));
  }
  Planned all;
  for (const int64_t context : contexts) {
    for (PlannedTask& task : found->plan({flags, context, max_positions, tokenizer})) {
      all.push_back(std::move(task));
    }
  }
  return all;
}

}  // namespace fasa
