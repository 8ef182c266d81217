#include "bindings/python/core/evals.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/core/eval_tasks.h"
#include "runtime/base/error.h"
#include "runtime/eval/needle_task.h"
#include "runtime/eval/perplexity.h"

namespace fasa::python {
namespace {

std::vector<EvalText> texts_of(const std::optional<std::vector<std::string>>& paths,
                               const std::string& model, const text::TextCoder& tokenizer) {
  return read_eval_texts(paths ? *paths : std::vector{default_eval_text(model)}, &tokenizer);
}

// Windows of a text, as in PerplexityTask.
class PyPerplexity {
 public:
  PyPerplexity(const CallbackTokenizer& tokenizer, const std::string& model,
               const std::optional<std::vector<std::string>>& paths,
               const PerplexityOptions& options, int64_t max_positions)
      : texts_((options.validate(max_positions), texts_of(paths, model, tokenizer))),
        options_(options),
        task_(texts_, options) {}

  const EvalTask& task() const { return task_; }
  // (file name, first token, the window's tokens and the one after it).
  nb::tuple example(size_t index) const {
    const std::string id = task_.id(index);
    const size_t at = id.find('@');
    const EvalText& text = texts_.at(std::stoul(id));
    const auto first = std::stol(id.substr(at + 1));
    const auto begin = text.ids.begin() + first;
    const std::vector<int32_t> ids(begin, begin + options_.context + 1);
    return nb::make_tuple(text.describe().at("file").get<std::string>(), first, ids);
  }

 private:
  std::vector<EvalText> texts_;
  PerplexityOptions options_;
  PerplexityTask task_;
};

class PyNeedle {
 public:
  PyNeedle(std::unique_ptr<CallbackTokenizer> tokenizer, const std::string& model,
           const std::optional<std::vector<std::string>>& paths, const NeedleOptions& options,
           int64_t max_positions)
      : tokenizer_(std::move(tokenizer)),
        needle_((options.validate(max_positions), NeedleTemplate::of_model(model))),
        task_(texts_of(paths, model, *tokenizer_), needle_, *tokenizer_, options) {}

  const EvalTask& task() const { return task_; }
  // (the text's tokens, [(question, answer, depth)]).
  nb::tuple example(size_t index) const {
    const NeedleTask::Example made = task_.make(index);
    nb::list questions;
    for (const auto& question : made.questions) {
      questions.append(
          nb::make_tuple(question.fact.question, question.fact.answer, question.depth));
    }
    return nb::make_tuple(made.text, questions);
  }
  bool is_complete(const nb::bytes& answer) const {
    return needle_.is_complete({answer.c_str(), answer.size()});
  }
  bool is_right(const nb::bytes& answer, const std::string& expected) const {
    return needle_.is_right({answer.c_str(), answer.size()}, expected);
  }

 private:
  std::unique_ptr<CallbackTokenizer> tokenizer_;
  NeedleTemplate needle_;
  NeedleTask task_;
};

using Paths = std::optional<std::vector<std::string>>;

void add_tasks(nb::module_& module) {
  nb::class_<PyPerplexity> windows(module, "_Perplexity");
  windows.def(
      "__init__",
      [](PyPerplexity* self, nb::object encode, nb::object decode, const std::string& model,
         const Paths& texts, int64_t max_positions, int64_t context, int64_t stride) {
        const CallbackTokenizer tokenizer(std::move(encode), std::move(decode));
        new (self) PyPerplexity(tokenizer, model, texts, {context, stride}, max_positions);
      },
      nb::arg("encode"), nb::arg("decode"), nb::arg("model"), nb::arg("texts").none(),
      nb::arg("max_positions"), nb::kw_only(), nb::arg("context"), nb::arg("stride"));
  add_task_members(windows);
  windows.def("example", &PyPerplexity::example, nb::arg("index"));

  nb::class_<PyNeedle> needle(module, "_Needle");
  needle.def(
      "__init__",
      [](PyNeedle* self, nb::object encode, nb::object decode, const std::string& model,
         const Paths& texts, int64_t max_positions, int64_t context, int facts,
         const std::vector<double>& depths, std::optional<int> examples, uint64_t seed) {
        NeedleOptions options{.context = context, .facts = facts, .seed = seed};
        if (!depths.empty()) options.depths = depths;
        options.examples = examples.value_or(options.examples);
        new (self)
            PyNeedle(std::make_unique<CallbackTokenizer>(std::move(encode), std::move(decode)),
                     model, texts, options, max_positions);
      },
      nb::arg("encode"), nb::arg("decode"), nb::arg("model"), nb::arg("texts").none(),
      nb::arg("max_positions"), nb::kw_only(), nb::arg("context"), nb::arg("facts"),
      nb::arg("depths"), nb::arg("examples").none(), nb::arg("seed"));
  add_task_members(needle);
  needle.def("example", &PyNeedle::example, nb::arg("index"))
      .def("is_complete", &PyNeedle::is_complete)
      .def("is_right", &PyNeedle::is_right);
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
