#include "bindings/python/studies/module_parts.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/python/core/json_value.h"
#include "bindings/python/studies/callback_tokenizer.h"
#include "runtime/base/error.h"
#include "runtime/eval/eval_plan.h"
#include "runtime/eval/perplexity.h"
#include "runtime/eval/tasks/question_task.h"

namespace fasa::python {
namespace {

// One of the tasks of plan_tasks(), for a model that runs in Python.
class PyTask {
 public:
  PyTask(std::shared_ptr<const CallbackTokenizer> tokenizer, PlannedTask planned)
      : tokenizer_(std::move(tokenizer)), planned_(std::move(planned)) {
    windows_ = dynamic_cast<const PerplexityTask*>(planned_.task.get());
    questions_ = dynamic_cast<const QuestionTask*>(planned_.task.get());
  }

  const EvalTask& task() const { return *planned_.task; }
  size_t examples() const { return planned_.examples; }
  const std::vector<std::string>& problems() const { return planned_.problems; }
  bool asks() const { return questions_ != nullptr; }
  bool turns() const { return asks() && task().setup().contains("turns"); }
  // Members of the record, the window's tokens and the one after it.
  nb::tuple window(size_t example) const {
    const std::span<const int32_t> ids = windows_->tokens(example);
    return nb::make_tuple(to_python(windows_->about(example)),
                          std::vector<int32_t>(ids.begin(), ids.end()));
  }
  // (the text's tokens, [(tokens of the question, of its right answer, of an answer at most)]).
  nb::tuple questions(size_t example) {
    asked_ = questions_->make(example);
    nb::list list;
    for (const Question& question : asked_.questions) {
      list.append(nb::make_tuple(questions_->ids_of(question),
                                 questions_->ids_behind(question.answer), question.answer_tokens));
    }
    return nb::make_tuple(asked_.ids, list);
  }
  // The calls below are about the example of the last call above.
  bool is_complete(size_t question, const nb::bytes& answer) const {
    return questions_->is_complete(asked_.questions.at(question), view(answer));
  }
  nb::object record(size_t example, const std::vector<nb::bytes>& answers) const {
    nlohmann::json questions = nlohmann::json::array();
    for (size_t i = 0; i < answers.size(); ++i) {
      questions.push_back(
          questions_->answered(asked_.questions.at(i), std::string(view(answers[i]))));
    }
    return to_python(questions_->record(example, asked_, std::move(questions)));
  }

 private:
  static std::string_view view(const nb::bytes& text) { return {text.c_str(), text.size()}; }

  std::shared_ptr<const CallbackTokenizer> tokenizer_;  // outlives the task
  PlannedTask planned_;
  const PerplexityTask* windows_;
  const QuestionTask* questions_;
  AskedText asked_;
};

std::vector<PyTask> tasks_of(const EvalOptions& options, int64_t max_positions, nb::object encode,
                             nb::object decode) {
  const auto tokenizer =
      std::make_shared<const CallbackTokenizer>(std::move(encode), std::move(decode));
  std::vector<PyTask> tasks;
  for (PlannedTask& planned : plan_tasks(options, max_positions, tokenizer.get())) {
    if (planned.scored_apart) {
      throw UsageError(
          fmt::format("task \"{}\": only `fasa eval` scores its answers", options.task));
    }
    tasks.emplace_back(tokenizer, std::move(planned));
  }
  return tasks;
}

void add_tasks(nb::module_& module) {
  nb::class_<EvalOptions>(module, "_EvalOptions")
      .def(nb::init<>())
      .def_rw("task", &EvalOptions::task)
      .def_rw("model", &EvalOptions::model_dir)
      .def_rw("text", &EvalOptions::texts)
      .def_rw("context", &EvalOptions::contexts)
      .def_rw("examples", &EvalOptions::examples)
      .def_rw("stride", &EvalOptions::stride)
      .def_rw("facts", &EvalOptions::facts)
      .def_rw("depths", &EvalOptions::depths)
      .def_rw("seed", &EvalOptions::seed)
      .def_rw("prefill_questions", &EvalOptions::prefill_questions)
      .def_rw("records", &EvalOptions::records)
      .def_rw("data", &EvalOptions::data)
      .def_rw("tasks", &EvalOptions::tasks);
  nb::class_<PyTask>(module, "_EvalTask")
      .def_prop_ro("name", [](const PyTask& self) { return self.task().name(); })
      .def_prop_ro(
          "metric",
          [](const PyTask& self) { return std::string(metric_name(self.task().metric())); })
      .def_prop_ro("examples", &PyTask::examples)
      .def_prop_ro("problems", &PyTask::problems)
      .def_prop_ro("asks", &PyTask::asks)
      .def_prop_ro("turns", &PyTask::turns)
      .def("id", [](const PyTask& self, size_t index) { return self.task().id(index); })
      .def("window", &PyTask::window, nb::arg("example"))
      .def("questions", &PyTask::questions, nb::arg("example"))
      .def("is_complete", &PyTask::is_complete, nb::arg("question"), nb::arg("answer"))
      .def("record", &PyTask::record, nb::arg("example"), nb::arg("answers"));
  module.def("_eval_tasks", tasks_of, nb::arg("options"), nb::arg("max_positions"),
             nb::arg("encode"), nb::arg("decode"));
}

void add_results(nb::module_& module) {
  module.def(
      "eval_summary",
      [](const std::string& metric, const nb::list& records) {
        std::vector<nlohmann::json> lines;
        for (nb::handle record : records) lines.push_back(to_json(record, "record"));
        const Summary summary = summarize(
            metric == metric_name(Metric::kAccuracy) ? Metric::kAccuracy : Metric::kPerplexity,
            lines);
        return nb::make_tuple(summary.value, summary.interval.low, summary.interval.high,
                              summary.examples, summary.counted);
      },
      nb::arg("metric"), nb::arg("records"),
      "Returns the value, the bounds of its 95 % interval, the number of records, and their "
      "count.");
}

}  // namespace

void add_evals(nb::module_& module) {
  add_tasks(module);
  add_results(module);
}

}  // namespace fasa::python
